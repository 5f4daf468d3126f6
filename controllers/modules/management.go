package modules

import (
	"fmt"
	"slices"
	"strings"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// permitted returns why a set may not deliver a content: the users of most
// namespaces must not run anything in the management cluster.
func permitted(content *modules.Content, set *addonsv1.NovaModuleSet, from []string) error {
	if slices.Contains(from, set.Namespace) {
		return nil
	}
	var names []string
	for i := range content.Modules {
		if !content.Modules[i].InTenant() {
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
		strings.Join(names[:min(len(names), named)], ", "), set.Namespace, allowed)
}
