// Package factory takes the place of external-dns' package with this name when it is built.
// external-dns' package compiles the clients of 25 DNS services, of which the tests use none.
package factory

import (
	"context"
	"fmt"

	"sigs.k8s.io/external-dns/endpoint"
	"sigs.k8s.io/external-dns/pkg/apis/externaldns"
	"sigs.k8s.io/external-dns/provider"
	"sigs.k8s.io/external-dns/provider/rfc2136"
)

// Select knows DNS servers with RFC 2136 only.
func Select(ctx context.Context, cfg *externaldns.Config, domains *endpoint.DomainFilter) (provider.Provider, error) {
	if cfg.Provider != externaldns.ProviderRFC2136 {
		return nil, fmt.Errorf("finding provider %s: this program is built with %s only", cfg.Provider, externaldns.ProviderRFC2136)
	}
	return rfc2136.New(ctx, cfg, domains)
}
