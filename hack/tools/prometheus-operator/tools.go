//go:build tools

// Package tools pins the module whose definitions the samples in
// config/monitoring are checked against.
package tools

import _ "github.com/prometheus-operator/prometheus-operator/example/alertmanager-webhook"
