//go:build tools

// Package tools pins csi-sanity, which tests CSI drivers against the specification.
package tools

import _ "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"
