//go:build tools

// Package tools pins a version of Traefik that a test upgrades, with the libraries of traefik where both versions
// compile with them. build.sh builds the program as that one.
package tools

import (
	_ "github.com/traefik/traefik/v3/pkg/version"

	// The client of a DNS service that build.sh adds.
	_ "github.com/nova-platform/cluster-api-provider-nova/hack/tools/traefik-previous/dns"

	// Traefik is built with the versions of these modules that the other programs have.
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	_ "k8s.io/client-go/kubernetes"
)
