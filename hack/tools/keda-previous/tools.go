//go:build tools

// Package tools pins a version of KEDA that a test upgrades. Its libraries have the versions of keda, so that
// Go compiles common packages once.
package tools

import (
	_ "github.com/kedacore/keda/v2/cmd/adapter"
	_ "github.com/kedacore/keda/v2/cmd/operator"
	_ "github.com/kedacore/keda/v2/cmd/webhooks"
)
