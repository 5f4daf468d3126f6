package resolve

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/pbm"
	pbmmethods "github.com/vmware/govmomi/pbm/methods"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// storage is the placement of the disks of VMs. One of datastore, pod and
// candidates is set.
type storage struct {
	datastore ref
	// pod is a datastore cluster; Storage DRS recommends one of its datastores.
	pod ref
	// candidates has the datastores that fit the policy, and allowed are those of
	// them that may be used; all if nil.
	candidates *datastoreCandidates
	allowed    map[ref]bool
	// policy is the ID of the storage policy; empty if there is none.
	policy string
}

// storage resolves the storage settings of a placement.
func (r *Cache) storage(ctx context.Context, p *vspherev1.NovaVSpherePlacement, pool ref) (s storage, err error) {
	if p.StoragePolicy != "" {
		if s.policy, err = r.policy(ctx, p.StoragePolicy); err != nil {
			return s, err
		}
	}
	switch {
	case p.DatastoreCluster != "":
		s.pod, err = r.pod(ctx, p)
	case p.Datastore == "" && s.policy != "":
		s.candidates, err = r.datastoreCandidates(ctx, p.StoragePolicy, s.policy, pool)
	default:
		s.datastore, _, err = r.datastore(ctx, p.Datacenter, "placement.datastore", p.Datastore)
	}
	return s, err
}

// named is an object with its name.
type named struct {
	ref  ref
	name string
}

// datastore resolves a datastore and its name.
func (r *Cache) datastore(ctx context.Context, dc, field, value string) (ref, string, error) {
	found, err := resolveIn(ctx, r, &r.datastores, name{field: field, datacenter: dc, name: value}, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (named, error) {
			found, err := f.DatastoreOrDefault(ctx, value)
			if err != nil {
				return named{}, err
			}
			return named{found.Reference(), found.Name()}, nil
		})
	return found.ref, found.name, err
}

func (r *Cache) pod(ctx context.Context, p *vspherev1.NovaVSpherePlacement) (ref, error) {
	return resolveIn(ctx, r, &r.refs, name{field: "placement.datastoreCluster", datacenter: p.Datacenter, name: p.DatastoreCluster}, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (ref, error) {
			found, err := f.DatastoreCluster(ctx, p.DatastoreCluster)
			return refOf(found, err)
		})
}

// policyClient returns a client of the storage policy service (PBM). Its
// requests use the same limits as all others.
func (r *Cache) policyClient(ctx context.Context, c *vim25.Client) (*pbm.Client, error) {
	sc := c.NewServiceClient(pbm.Path, pbm.Namespace)
	sc.Cookie = c.SessionCookie
	soapTransport := r.session.RoundTripper(sc)
	res, err := pbmmethods.PbmRetrieveServiceContent(ctx, soapTransport, &pbmtypes.PbmRetrieveServiceContent{This: pbm.ServiceInstance})
	if err != nil {
		return nil, err
	}
	return &pbm.Client{Client: sc, ServiceContent: res.Returnval, RoundTripper: soapTransport}, nil
}

// policy resolves the name of a storage policy to its ID.
func (r *Cache) policy(ctx context.Context, name string) (string, error) {
	return r.policies.get(ctx, r, name, func(ctx context.Context, c *vim25.Client) (string, error) {
		pc, err := r.policyClient(ctx, c)
		if err != nil {
			return "", err
		}
		ids, err := pc.QueryProfile(ctx, pbmtypes.PbmProfileResourceType{
			ResourceType: string(pbmtypes.PbmProfileResourceTypeEnumSTORAGE),
		}, string(pbmtypes.PbmProfileCategoryEnumREQUIREMENT))
		if err != nil {
			return "", err
		}
		profiles, err := pc.RetrieveContent(ctx, ids)
		if err != nil {
			return "", err
		}
		for _, p := range profiles {
			if found := p.GetPbmProfile(); found.Name == name {
				return found.ProfileId.UniqueId, nil
			}
		}
		return "", hypervisor.Failure(infrav1.PlacementNotFoundReason, "the storage policy %q does not exist in vCenter, or the account cannot see it", name)
	})
}

// datastoreCandidates is a set of datastores with their free space.
type datastoreCandidates struct {
	mu   sync.Mutex
	free map[ref]int64
}

// datastores returns all datastores of the set.
func (c *datastoreCandidates) datastores() []ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.free))
}

// pick chooses the datastore with the most free space, and counts the needed
// space as used, so that VMs that are created together are spread. It chooses
// among all datastores if allowed is nil.
func (c *datastoreCandidates) pick(required int64, allowed map[ref]bool) ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	var best ref
	for ds, free := range c.free {
		if allowed != nil && !allowed[ds] {
			continue
		}
		if best == (ref{}) || free > c.free[best] || free == c.free[best] && ds.Value < best.Value {
			best = ds
		}
	}
	c.free[best] -= required
	return best
}

// candidatesKey is a compute cluster and the ID of a storage policy.
type candidatesKey struct {
	cluster ref
	policy  string
}

// datastoreCandidates finds the datastores of a compute cluster that fit a
// policy.
func (r *Cache) datastoreCandidates(ctx context.Context, name, policy string, pool ref) (*datastoreCandidates, error) {
	cluster, err := r.owner(ctx, pool)
	if err != nil {
		return nil, err
	}
	return r.candidates.get(ctx, r, candidatesKey{cluster, policy}, func(ctx context.Context, c *vim25.Client) (*datastoreCandidates, error) {
		free, err := usableDatastores(ctx, c, cluster)
		if err != nil {
			return nil, err
		}
		pc, err := r.policyClient(ctx, c)
		if err != nil {
			return nil, err
		}
		hubs := make([]pbmtypes.PbmPlacementHub, 0, len(free))
		for ds := range free {
			hubs = append(hubs, pbmtypes.PbmPlacementHub{HubType: ds.Type, HubId: ds.Value})
		}
		res, err := pc.CheckRequirements(ctx, hubs, nil, []pbmtypes.BasePbmPlacementRequirement{
			&pbmtypes.PbmPlacementCapabilityProfileRequirement{ProfileId: pbmtypes.PbmProfileId{UniqueId: policy}},
		})
		if err != nil {
			return nil, err
		}
		found := &datastoreCandidates{free: map[ref]int64{}}
		for _, hub := range res.CompatibleDatastores() {
			ds := ref{Type: hub.HubType, Value: hub.HubId}
			if space, usable := free[ds]; usable {
				found.free[ds] = space
			}
		}
		if len(found.free) == 0 {
			return nil, hypervisor.Failure(infrav1.InsufficientResourcesReason, "no datastore of the compute cluster fits the storage policy %q and can be used", name)
		}
		return found, nil
	})
}

// usableDatastores returns the datastores of a compute cluster on which VMs
// can be stored, with their free space.
func usableDatastores(ctx context.Context, c *vim25.Client, cluster ref) (map[ref]int64, error) {
	var res mo.ComputeResource
	if err := object.NewCommon(c, cluster).Properties(ctx, cluster, []string{"datastore"}, &res); err != nil {
		return nil, err
	}
	return freeSpaceOf(ctx, c, res.Datastore)
}

func freeSpaceOf(ctx context.Context, c *vim25.Client, datastores []ref) (map[ref]int64, error) {
	free := map[ref]int64{}
	if len(datastores) == 0 {
		return free, nil
	}
	var found []mo.Datastore
	if err := property.DefaultCollector(c).Retrieve(ctx, datastores, []string{"summary"}, &found); err != nil {
		return nil, err
	}
	for i := range found {
		s := &found[i].Summary
		if s.Accessible && (s.MaintenanceMode == "" || s.MaintenanceMode == string(types.DatastoreSummaryMaintenanceModeStateNormal)) {
			free[found[i].Self] = s.FreeSpace
		}
	}
	return free, nil
}
