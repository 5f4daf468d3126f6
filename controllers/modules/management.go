package modules

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// validate returns why no part of a content may be written: it is malformed, or Flux would fetch it
// from an address that tenants must not use.
func validate(content *modules.Content, set *addonsv1.NovaModuleSet, from []string) error {
	if err := content.Validate(); err != nil {
		return err
	}
	return fetchable(content, set, from)
}

// fetchable returns why a set may not use its sources. Flux fetches them in the management cluster, so
// a tenant's user could make Flux connect to services that only the management cluster can reach. DNS
// names are resolved by Flux alone. Sets of the administrator may use any address.
func fetchable(content *modules.Content, set *addonsv1.NovaModuleSet, from []string) error {
	if slices.Contains(from, set.Namespace) {
		return nil
	}
	for i := range content.Sources {
		s := &content.Sources[i]
		for _, text := range []string{s.Git.URL, s.OCI.URL, s.Helm.URL} {
			if text == "" {
				continue
			}
			at, err := url.Parse(text)
			if err != nil {
				// The error quotes the URL, which may hold a password.
				return fmt.Errorf("source %q: the url is malformed", s.Name)
			}
			if err := endpoints.CheckHost(at.Hostname()); err != nil {
				return fmt.Errorf("source %q: %w", s.Name, err)
			}
		}
	}
	return nil
}

// permitted returns why a set may not deliver a content: the users of most namespaces must not run
// anything in the management cluster.
func permitted(content *modules.Content, set *addonsv1.NovaModuleSet, from []string) error {
	if slices.Contains(from, set.Namespace) {
		return nil
	}
	var names []string
	for i := range content.Modules {
		if !content.Modules[i].InWorkloadCluster() {
			names = append(names, content.Modules[i].Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	allowed := "no namespace"
	if len(from) > 0 {
		allowed = strings.Join(from, ", ")
	}
	return fmt.Errorf("the location Management of %s is not allowed for sets of the namespace %s: the administrator allows it for %s (--management-modules-from of nova-addon)",
		strings.Join(names[:min(len(names), maxListed)], ", "), set.Namespace, allowed)
}
