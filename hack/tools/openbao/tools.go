//go:build tools

// Package tools pins the server of OpenBao, which tests use in the place of StarVault.
package tools

import _ "github.com/openbao/openbao"
