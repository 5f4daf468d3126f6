//go:build tools

// Package tools names the programs that this module pins; build.sh builds them.
package tools

import _ "sigs.k8s.io/cluster-api-provider-kubevirt"
