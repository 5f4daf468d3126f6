// Package monitoring checks what config/monitoring has for Prometheus and
// Grafana: with Prometheus' own tools, against what the managers export, and on
// a real API server. It refuses to be imported.
package monitoring
