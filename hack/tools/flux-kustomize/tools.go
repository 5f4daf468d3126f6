//go:build tools

// Package tools names the programs that this module pins; build.sh builds them.
// What encrypts for Flux is of the version that Flux decrypts with.
package tools

import (
	_ "filippo.io/age/cmd/age-keygen"
	_ "github.com/fluxcd/kustomize-controller"
	_ "github.com/getsops/sops/v3/cmd/sops"
)
