//go:build tools

// Package tools pins external-dns, whose chart is read from its module. build.sh builds the program
// with the package factory in the place of its own one.
package tools

import (
	// The packages that external-dns' package controller imports, except the one that is replaced.
	_ "sigs.k8s.io/external-dns/pkg/events"
	_ "sigs.k8s.io/external-dns/provider/webhook/api"
	_ "sigs.k8s.io/external-dns/registry/factory"
	_ "sigs.k8s.io/external-dns/source/wrappers"

	// external-dns is built with the versions of these modules that the other programs have.
	_ "k8s.io/api/core/v1"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)
