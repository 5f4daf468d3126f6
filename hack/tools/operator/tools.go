//go:build tools

// Package tools pins Cluster API Operator, which installs releases in test/suites/release.
// The packages that it shares with the managers of this project have their versions, so
// that they are compiled once: its own release requires an older Cluster API.
package tools

import (
	_ "sigs.k8s.io/cluster-api-operator/cmd"
)
