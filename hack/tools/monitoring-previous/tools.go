//go:build tools

// Package tools pins the version of Alertmanager that a test upgrades. Its libraries have the versions
// of monitoring, so that Go compiles common packages once.
package tools

import _ "github.com/prometheus/alertmanager/cmd/alertmanager"
