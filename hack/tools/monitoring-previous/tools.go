//go:build tools

// Package tools pins the versions of programs that a test upgrades. Their libraries have the versions of
// monitoring, so that Go compiles common packages once. The version of kube-state-metrics is the same, for
// the manifests in its module: the version before does not compile with these libraries.
package tools

import (
	_ "github.com/prometheus-operator/prometheus-operator/cmd/operator"
	_ "github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader"
	_ "github.com/prometheus/alertmanager/cmd/alertmanager"
	_ "k8s.io/kube-state-metrics/v2"
	_ "sigs.k8s.io/descheduler/cmd/descheduler"
)
