//go:build tools

// Package tools pins the module with the definitions of Cluster API Operator, by which
// its manifests in a release are checked: nothing of it is built.
package tools

import (
	_ "sigs.k8s.io/cluster-api-operator/version"
)
