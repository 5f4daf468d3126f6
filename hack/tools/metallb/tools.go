//go:build tools

// Package tools pins MetalLB, which needs an older controller-runtime than the programs of the
// module addons; build.sh builds its programs.
package tools

import (
	_ "go.universe.tf/metallb/controller"
	_ "go.universe.tf/metallb/speaker"
)
