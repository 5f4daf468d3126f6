package resolve

import (
	"context"
	"regexp"
	"slices"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// path returns the names of all objects above an object except for the root
// folder, from the top, and its own name. Objects move, so the path is read
// again after some time.
func (r *Cache) path(ctx context.Context, at ref) ([]string, error) {
	return r.paths.get(ctx, r, at, func(ctx context.Context, c *vim25.Client) ([]string, error) {
		content, err := mo.RetrievePropertiesEx(ctx, c, types.RetrievePropertiesEx{
			This: c.ServiceContent.PropertyCollector, SpecSet: []types.PropertyFilterSpec{ancestorsOf(at)},
		})
		if vcenter.IsNotFound(err) {
			return nil, hypervisor.Failure(infrav1.PlacementNotFoundReason, "%s does not exist in vCenter, or the account cannot see it", at.Value)
		}
		if err != nil {
			return nil, err
		}
		names, whole := ancestorNames(content, at, c.ServiceContent.RootFolder)
		if !whole {
			return nil, hypervisor.Failure(infrav1.PermissionDeniedReason, "the account cannot see all folders above %s, so its bounds cannot be checked", at.Value)
		}
		return names, nil
	})
}

// ancestorsOf selects an object and all objects above it, with the properties
// that ancestorNames needs.
func ancestorsOf(at ref) types.PropertyFilterSpec {
	again := []types.BaseSelectionSpec{&types.SelectionSpec{Name: "up"}}
	return types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: at, SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{SelectionSpec: types.SelectionSpec{Name: "up"}, Type: "ManagedEntity", Path: "parent", SelectSet: again},
			&types.TraversalSpec{Type: "VirtualMachine", Path: "parentVApp", SelectSet: again},
		}}},
		PropSet: []types.PropertySpec{
			{Type: "ManagedEntity", PathSet: []string{"name", "parent"}},
			{Type: "VirtualMachine", PathSet: []string{"parentVApp"}},
		},
	}
}

// ancestorNames returns the names from below the root folder down to an object,
// and whether it reached the root folder: the account may not have permission
// to read all objects above.
func ancestorNames(content []types.ObjectContent, at, root ref) ([]string, bool) {
	type entity struct {
		name   string
		parent ref
	}
	seen := map[ref]entity{}
	for _, object := range content {
		var e entity
		for _, p := range object.PropSet {
			switch value := p.Val.(type) {
			case string:
				e.name = value
			case ref:
				e.parent = value
			}
		}
		seen[object.Obj] = e
	}
	var names []string
	for range len(content) + 1 {
		if at == root {
			slices.Reverse(names)
			return names, len(names) > 0
		}
		e, ok := seen[at]
		if !ok || e.name == "" {
			return nil, false
		}
		names, at = append(names, e.name), e.parent
	}
	return nil, false
}

// networkReference matches a network that is given by its reference.
var networkReference = regexp.MustCompile(`^(Network|DistributedVirtualPortgroup|OpaqueNetwork):([A-Za-z0-9-]+)$`)

// network is a network, and the backing of a NIC on it.
type network struct {
	ref     ref
	backing types.BaseVirtualDeviceBackingInfo
}

// network resolves a network.
func (r *Cache) network(ctx context.Context, dc, value string) (network, error) {
	if at := networkReference.FindStringSubmatch(value); at != nil {
		return r.networks.get(ctx, r, name{field: "network", name: value}, func(ctx context.Context, c *vim25.Client) (network, error) {
			found, _ := object.NewReference(c, ref{Type: at[1], Value: at[2]}).(object.NetworkReference)
			backing, err := backingOf(ctx, found)
			if vcenter.IsNotFound(err) {
				return network{}, hypervisor.Failure(infrav1.PlacementNotFoundReason, "network %q does not exist in vCenter, or the account cannot see it", value)
			}
			return network{found.Reference(), backing}, err
		})
	}
	return resolveIn(ctx, r, &r.networks, name{field: "network", datacenter: dc, name: value}, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (network, error) {
			found, err := f.Network(ctx, value)
			if err != nil {
				return network{}, err
			}
			backing, err := backingOf(ctx, found)
			return network{found.Reference(), backing}, err
		})
}

// backingOf returns the backing of a NIC on a network. Apart from faults and
// connection failures, govmomi's only error is that the account cannot read
// the switch of a port group.
func backingOf(ctx context.Context, n object.NetworkReference) (types.BaseVirtualDeviceBackingInfo, error) {
	backing, err := n.EthernetCardBackingInfo(ctx)
	if err == nil || vcenter.FaultOf(vcenter.RootCause(err)) != nil || soap.IsSoapFault(vcenter.RootCause(err)) || vcenter.AsError(err) != nil || vcenter.IsUnreachable(err) {
		return backing, err
	}
	return nil, hypervisor.Failure(infrav1.PermissionDeniedReason, "the account cannot read the distributed switch of a network: %w", err)
}

// compute is a compute cluster, or a standalone host, with its root resource
// pool.
type compute struct {
	ref, root ref
	path      string
}

func (r *Cache) compute(ctx context.Context, p *vspherev1.NovaVSpherePlacement) (compute, error) {
	return resolveIn(ctx, r, &r.computes, name{field: "placement.computeCluster", datacenter: p.Datacenter, name: p.ComputeCluster}, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, c *vim25.Client) (compute, error) {
			found, err := f.ComputeResource(ctx, p.ComputeCluster)
			if err != nil {
				return compute{}, err
			}
			var res mo.ComputeResource
			if err := object.NewCommon(c, found.Reference()).Properties(ctx, found.Reference(), []string{"resourcePool"}, &res); err != nil {
				return compute{}, err
			}
			return compute{ref: found.Reference(), root: ptr.Deref(res.ResourcePool, ref{}), path: found.InventoryPath}, nil
		})
}

// owner returns the compute cluster of a resource pool.
func (r *Cache) owner(ctx context.Context, pool ref) (ref, error) {
	return r.owners.get(ctx, r, pool, func(ctx context.Context, c *vim25.Client) (ref, error) {
		var p mo.ResourcePool
		err := object.NewCommon(c, pool).Properties(ctx, pool, []string{"owner"}, &p)
		return p.Owner, err
	})
}

// checkTags checks that a compute cluster, or a datacenter, has tags.
func (r *Cache) checkTags(ctx context.Context, p *vspherev1.NovaVSpherePlacement, wanted []vspherev1.NovaVSphereTag) error {
	if len(wanted) == 0 {
		return nil
	}
	var object ref
	kind := "datacenter"
	if p.ComputeCluster != "" {
		cluster, err := r.compute(ctx, p)
		if err != nil {
			return err
		}
		object, kind = cluster.ref, "compute cluster"
	} else {
		dc, err := r.datacenter(ctx, p.Datacenter)
		if err != nil {
			return err
		}
		object = dc.Reference()
	}
	has, err := r.tagsOf(ctx, object)
	if err != nil {
		return err
	}
	for _, tag := range wanted {
		if !has[tag] {
			r.tags.drop(object)
			return hypervisor.Failure(infrav1.PlacementNotFoundReason, "its %s does not have the tag %q of the category %q", kind, tag.Name, tag.Category)
		}
	}
	return nil
}

// tagsOf returns the tags of an object.
func (r *Cache) tagsOf(ctx context.Context, object ref) (map[vspherev1.NovaVSphereTag]bool, error) {
	return r.tags.get(ctx, r, object, func(ctx context.Context, _ *vim25.Client) (map[vspherev1.NovaVSphereTag]bool, error) {
		has := map[vspherev1.NovaVSphereTag]bool{}
		err := r.session.CallREST(ctx, func(ctx context.Context, c *rest.Client) error {
			m := tags.NewManager(c)
			attached, err := m.GetAttachedTags(ctx, object)
			if err != nil {
				return err
			}
			categories := map[string]string{}
			for i := range attached {
				id := attached[i].CategoryID
				if categories[id] == "" {
					category, err := m.GetCategory(ctx, id)
					if err != nil {
						return err
					}
					categories[id] = category.Name
				}
				has[vspherev1.NovaVSphereTag{Category: categories[id], Name: attached[i].Name}] = true
			}
			return nil
		})
		return has, vcenter.ConvertRESTError(err)
	})
}
