// Package monitoring checks the files for Prometheus and Grafana in
// config/monitoring: with Prometheus' own tools, against the metrics that the
// managers export, and on a real API server. It cannot be imported.
package monitoring
