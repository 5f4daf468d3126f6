//go:build tools

// Package tools pins Traefik, whose CustomResourceDefinitions are read from its module. build.sh
// builds the program, with the package dns in the place of the one of lego.
package tools

import (
	_ "github.com/traefik/traefik/v3/pkg/version"

	// Traefik is built with the versions of these modules that the other programs have.
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	_ "k8s.io/client-go/kubernetes"
)
