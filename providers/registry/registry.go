package registry

import (
	"slices"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt"
)

// providers is the place where a new provider is added.
var providers = []*provider.Info{
	&vsphere.Provider.Info,
	&zvirt.Provider.Info,
	&proxmox.Provider.Info,
}

// All returns the providers in the order of the documents.
func All() []*provider.Info { return slices.Clone(providers) }
