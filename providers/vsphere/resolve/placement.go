package resolve

import (
	"context"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// Placement is the resolved placement of VMs.
type Placement struct {
	// Pool is the resource pool, and Folder the folder.
	Pool, Folder ref
	// hosts are the hosts of the host group; none if there is no group.
	hosts   []ref
	storage storage
}

// resolvePlacement resolves a placement.
func (r *Cache) resolvePlacement(ctx context.Context, p *vspherev1.NovaVSpherePlacement) (s Placement, err error) {
	if s.Pool, err = r.pool(ctx, p); err != nil {
		return s, err
	}
	if s.Folder, err = r.folder(ctx, p); err != nil {
		return s, err
	}
	if p.HostGroup != "" {
		if s.hosts, err = r.hosts(ctx, p, s.Pool); err != nil {
			return s, err
		}
	}
	s.storage, err = r.storage(ctx, p, s.Pool)
	return s, err
}

// Host returns the host on which the VM with the given instance UUID is
// created; nil for any host. After each failed creation, it returns the next
// host.
func (s *Placement) Host(id uuid.UUID, failures int) *ref {
	return s.hostAt(int(id[15]) + failures)
}

// Policy returns the ID of the storage policy, or an empty string.
func (s *Placement) Policy() string { return s.storage.policy }

// hostAt returns the host for a number of earlier attempts; nil for any host.
func (s *Placement) hostAt(attempt int) *ref {
	if len(s.hosts) == 0 {
		return nil
	}
	return &s.hosts[attempt%len(s.hosts)]
}

// pool resolves the resource pool: inside the compute cluster, if one is set.
func (r *Cache) pool(ctx context.Context, p *vspherev1.NovaVSpherePlacement) (ref, error) {
	key := name{field: "placement.resourcePool", datacenter: p.Datacenter, name: p.ResourcePool}
	if p.ComputeCluster == "" {
		return resolveIn(ctx, r, &r.refs, key, infrav1.PlacementNotFoundReason,
			func(ctx context.Context, f *find.Finder, _ *vim25.Client) (ref, error) {
				found, err := f.ResourcePoolOrDefault(ctx, p.ResourcePool)
				return refOf(found, err)
			})
	}
	cluster, err := r.compute(ctx, p)
	if err != nil || p.ResourcePool == "" {
		return cluster.root, err
	}
	key.variant = cluster.ref.Value
	return resolveIn(ctx, r, &r.refs, key, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (ref, error) {
			where := p.ResourcePool
			if !strings.HasPrefix(where, "/") && !slices.Contains(strings.Split(where, "/"), "Resources") {
				where = path.Join(cluster.path, "Resources", where)
			}
			found, err := f.ResourcePool(ctx, where)
			if err == nil && !strings.HasPrefix(found.InventoryPath, cluster.path+"/") {
				err = hypervisor.Failure(infrav1.PlacementNotFoundReason, "placement.resourcePool %q is not in placement.computeCluster %q", p.ResourcePool, p.ComputeCluster)
			}
			if _, missing := errors.AsType[*find.NotFoundError](err); missing {
				err = hypervisor.Failure(infrav1.PlacementNotFoundReason, "placement.resourcePool %q does not exist in placement.computeCluster %q, or the account cannot see it", p.ResourcePool, p.ComputeCluster)
			}
			return refOf(found, err)
		})
}

// folder resolves the VM folder, and creates it if that is requested.
func (r *Cache) folder(ctx context.Context, p *vspherev1.NovaVSpherePlacement) (ref, error) {
	create := ptr.Deref(p.CreateFolder, false)
	return resolveIn(ctx, r, &r.refs, name{field: "placement.folder", datacenter: p.Datacenter, name: p.Folder, variant: strconv.FormatBool(create)}, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, c *vim25.Client) (ref, error) {
			found, err := f.FolderOrDefault(ctx, p.Folder)
			if _, missing := errors.AsType[*find.NotFoundError](err); missing && create {
				return createFolder(ctx, f, c, p.Folder)
			}
			return refOf(found, err)
		})
}

// createFolder creates the folders of a path below the datacenter's VM folder
// that do not exist. Another client may create the same folders at the same
// time.
func createFolder(ctx context.Context, f *find.Finder, c *vim25.Client, name string) (ref, error) {
	top, err := f.DefaultFolder(ctx)
	if err != nil {
		return ref{}, err
	}
	below := strings.Trim(name, "/")
	if strings.HasPrefix(name, "/") {
		rest, ok := strings.CutPrefix(name, top.InventoryPath+"/")
		if !ok {
			return ref{}, kit.InvalidSpec("placement.folder %q is not below %s", name, top.InventoryPath)
		}
		below = rest
	}
	at := top.Reference()
	for part := range strings.SplitSeq(below, "/") {
		res, err := methods.FindChild(ctx, c, &types.FindChild{This: *c.ServiceContent.SearchIndex, Entity: at, Name: part})
		if err != nil {
			return ref{}, err
		}
		if res.Returnval != nil {
			at = *res.Returnval
			continue
		}
		made, err := methods.CreateFolder(ctx, c, &types.CreateFolder{This: at, Name: part})
		var duplicate *types.DuplicateName
		if err != nil {
			if _, ok := fault.As(err, &duplicate); !ok {
				return ref{}, err
			}
			at = duplicate.Object
			continue
		}
		at = made.Returnval
	}
	return at, nil
}

// hostGroup is the host group of a placement, with its group of VMs.
type hostGroup struct {
	cluster        ref
	hosts, vmGroup string
}

// hosts returns the hosts of a DRS group on which a VM can be created.
func (r *Cache) hosts(ctx context.Context, p *vspherev1.NovaVSpherePlacement, pool ref) ([]ref, error) {
	cluster, err := r.owner(ctx, pool)
	if err != nil {
		return nil, err
	}
	return r.hostGroups.get(ctx, r, hostGroup{cluster, p.HostGroup, p.VMGroup}, func(ctx context.Context, c *vim25.Client) ([]ref, error) {
		members, err := hostGroupMembers(ctx, c, cluster, p)
		if err != nil {
			return nil, err
		}
		var hosts []mo.HostSystem
		if err := property.DefaultCollector(c).Retrieve(ctx, members, []string{"runtime.connectionState", "runtime.inMaintenanceMode"}, &hosts); err != nil {
			return nil, err
		}
		var usable []ref
		for i := range hosts {
			if hosts[i].Runtime.ConnectionState == types.HostSystemConnectionStateConnected && !hosts[i].Runtime.InMaintenanceMode {
				usable = append(usable, hosts[i].Self)
			}
		}
		if len(usable) == 0 {
			return nil, hypervisor.Failure(infrav1.InsufficientResourcesReason, "no host of placement.hostGroup %q can run VMs: all are in maintenance mode or not connected", p.HostGroup)
		}
		slices.SortFunc(usable, func(a, b ref) int { return strings.Compare(a.Value, b.Value) })
		return usable, nil
	})
}
