//go:build tools

// Package tools pins a version of cert-manager that a test upgrades. Its programs are those of the folder
// cert-manager, with the same libraries.
package tools

import (
	_ "github.com/cert-manager/cert-manager/nova/cert-manager-cainjector"
	_ "github.com/cert-manager/cert-manager/nova/cert-manager-controller"
	_ "github.com/cert-manager/cert-manager/nova/cert-manager-startupapicheck"
	_ "github.com/cert-manager/cert-manager/nova/cert-manager-webhook"
)
