//go:build tools

// Package tools pins the programs that tests of config/monitoring run.
package tools

import _ "k8s.io/kube-state-metrics/v2"
