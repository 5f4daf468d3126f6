//go:build tools

// Package tools names the programs that this module pins; build.sh builds them.
// It is a module of its own because kwok does not compile with the versions of
// Kubernetes' libraries in components.
package tools

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
