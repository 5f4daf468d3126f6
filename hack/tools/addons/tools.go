//go:build tools

// Package tools names the programs that this module pins; build.sh builds them.
package tools

import (
	_ "github.com/rancher/local-path-provisioner"
	_ "sigs.k8s.io/gateway-api/apis/v1"
	_ "sigs.k8s.io/metrics-server/cmd/metrics-server"
)
