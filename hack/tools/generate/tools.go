//go:build tools

// Package tools names the programs that this module pins; build.sh builds them.
package tools

import (
	_ "gotest.tools/gotestsum"
	_ "sigs.k8s.io/controller-tools/cmd/controller-gen"
)
