//go:build tools

// Package tools pins Prometheus and the programs around it: tests of config/monitoring run some of
// them, and hosts run them as modules of the catalogue. The descheduler is here because it needs the
// same versions of libraries.
package tools

import (
	_ "github.com/prometheus-operator/prometheus-operator/cmd/operator"
	_ "github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader"
	_ "github.com/prometheus/alertmanager/cmd/alertmanager"
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "k8s.io/kube-state-metrics/v2"
	_ "sigs.k8s.io/descheduler/cmd/descheduler"
)
