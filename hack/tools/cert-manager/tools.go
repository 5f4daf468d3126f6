//go:build tools

// Package tools pins the module whose definitions the bed installs: nothing of
// it is built.
package tools

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
)
