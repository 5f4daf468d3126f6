package engine

import (
	"slices"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// Bounds are the objects of an engine that an identity allows. The zero value
// allows all objects: a cluster with its own Secret is limited by the
// permissions of the engine's user only.
//
// Clusters with different bounds share sessions, so each look-up for a cluster
// passes the bounds of that cluster. They are checked against the object that
// was found and not against the name in the spec.
type Bounds struct {
	// Identity is the name of the identity. It is empty if there is none.
	Identity string
	zvirtv1.NovaZVirtBounds
}

// allow checks the ID and the names of the object that a field references.
func (b *Bounds) allow(field, value, bound string, entries []string, names ...string) error {
	if len(entries) == 0 || slices.ContainsFunc(names, func(name string) bool { return name != "" && slices.Contains(entries, name) }) {
		return nil
	}
	return hypervisor.Failure(infrav1.OutOfBoundsReason, "%s %q is outside of spec.bounds.%s of NovaZVirtIdentity %q", field, value, bound, b.Identity)
}

func (b *Bounds) allowCluster(value string, o ovirt.Object) error {
	return b.allow("placement.computeCluster", value, "computeClusters", b.ComputeClusters, o.ID, o.Name)
}

func (b *Bounds) allowDomain(value string, o ovirt.Object) error {
	return b.allow("storage domain", value, "storageDomains", b.StorageDomains, o.ID, o.Name)
}

func (b *Bounds) allowTemplate(t *ovirt.Template) error {
	return b.allow("template", t.Name, "templates", b.Templates, t.ID, t.Name)
}

// allowProfile checks a vNIC profile and its network.
func (b *Bounds) allowProfile(field, value string, profile, network ovirt.Object) error {
	names := []string{profile.ID, network.Name}
	if network.Name != "" {
		names = append(names, network.Name+"/"+profile.Name)
	}
	return b.allow(field, value, "networks", b.Networks, names...)
}
