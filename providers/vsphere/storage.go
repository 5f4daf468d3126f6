package vsphere

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/pbm"
	pbmmethods "github.com/vmware/govmomi/pbm/methods"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
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
func (r *resolver) storage(ctx context.Context, p *infrav1.NovaVSpherePlacement, pool ref) (s storage, err error) {
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
func (r *resolver) datastore(ctx context.Context, dc, field, name string) (ref, string, error) {
	found, err := resolveIn(ctx, r, dc, field, name, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (named, error) {
			found, err := f.DatastoreOrDefault(ctx, name)
			if err != nil {
				return named{}, err
			}
			return named{found.Reference(), found.Name()}, nil
		})
	return found.ref, found.name, err
}

func (r *resolver) pod(ctx context.Context, p *infrav1.NovaVSpherePlacement) (ref, error) {
	return resolveIn(ctx, r, p.Datacenter, "placement.datastoreCluster", p.DatastoreCluster, infrav1.PlacementNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (ref, error) {
			found, err := f.DatastoreCluster(ctx, p.DatastoreCluster)
			return refOf(found, err)
		})
}

// policyClient returns a client of the storage policy service (PBM). Its
// requests use the same limits as all others.
func (s *session) policyClient(ctx context.Context, c *vim25.Client) (*pbm.Client, error) {
	sc := c.NewServiceClient(pbm.Path, pbm.Namespace)
	sc.Cookie = c.SessionCookie
	soapTransport := s.RoundTripper(sc)
	res, err := pbmmethods.PbmRetrieveServiceContent(ctx, soapTransport, &pbmtypes.PbmRetrieveServiceContent{This: pbm.ServiceInstance})
	if err != nil {
		return nil, err
	}
	return &pbm.Client{Client: sc, ServiceContent: res.Returnval, RoundTripper: soapTransport}, nil
}

// policy resolves the name of a storage policy to its ID.
func (r *resolver) policy(ctx context.Context, name string) (string, error) {
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (string, error) {
		pc, err := r.session.policyClient(ctx, c)
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
	}, "storagePolicy", name)
}

// datastoreCandidates is a set of datastores with their free space.
type datastoreCandidates struct {
	read time.Time

	mu   sync.Mutex
	free map[ref]int64
}

func (c *datastoreCandidates) ReadAt() time.Time { return c.read }

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

// datastoreCandidates finds the datastores of a compute cluster that fit a
// policy.
func (r *resolver) datastoreCandidates(ctx context.Context, name, policy string, pool ref) (*datastoreCandidates, error) {
	cluster, err := r.owner(ctx, pool)
	if err != nil {
		return nil, err
	}
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (*datastoreCandidates, error) {
		free, err := usableDatastores(ctx, c, cluster)
		if err != nil {
			return nil, err
		}
		pc, err := r.session.policyClient(ctx, c)
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
		found := &datastoreCandidates{read: time.Now(), free: map[ref]int64{}}
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
	}, datastoresKey, cluster.Value, policy)
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

// recommendDatastore requests a recommendation of a datastore of a pod for a
// clone from Storage DRS.
func (d *driver) recommendDatastore(ctx context.Context, pod ref, req *types.CloneVM_Task) (ref, error) {
	var res *types.RecommendDatastoresResponse
	err := d.session.Call(ctx, func(ctx context.Context, c *vim25.Client) (err error) {
		res, err = methods.RecommendDatastores(ctx, c, &types.RecommendDatastores{
			This: *c.ServiceContent.StorageResourceManager,
			StorageSpec: types.StoragePlacementSpec{
				Type: string(types.StoragePlacementSpecPlacementTypeClone),
				Vm:   &req.This, Folder: &req.Folder, CloneName: req.Name, CloneSpec: &req.Spec,
				PodSelectionSpec: types.StorageDrsPodSelectionSpec{StoragePod: &pod},
			},
		})
		return err
	})
	if vcenter.IsNotFound(err) {
		d.session.resolver.dropAll()
	}
	if err != nil {
		return ref{}, vcenter.Classify(d.session.Server(), err)
	}
	for i := range res.Returnval.Recommendations {
		for _, action := range res.Returnval.Recommendations[i].Action {
			if placement, ok := action.(*types.StoragePlacementAction); ok {
				return placement.Destination, nil
			}
		}
	}
	return ref{}, hypervisor.Failure(infrav1.InsufficientResourcesReason, "Storage DRS has no datastore to recommend%s", drsReasons(res.Returnval.DrsFault))
}

// drsReasons returns the reasons of Storage DRS, in vCenter's words.
func drsReasons(f *types.ClusterDrsFaults) string {
	var messages []string
	if f != nil {
		for _, by := range f.FaultsByVm {
			for _, cause := range by.GetClusterDrsFaultsFaultsByVm().Fault {
				messages = append(messages, strings.TrimRight(cause.LocalizedMessage, ". "))
			}
		}
	}
	if len(messages) == 0 {
		return ""
	}
	return ": " + strings.Join(messages, "; ")
}

// dataDiskPlacements resolves the placements of the data disks of a machine,
// within bounds.
func (d *driver) dataDiskPlacements(ctx context.Context, g *spec.Effective, disks *infrav1.NovaVSphereDisks, target *resolvedPlacement) ([]spec.DiskPlacement, error) {
	r := d.session.resolver
	out := make([]spec.DiskPlacement, len(disks.Data))
	for i := range disks.Data {
		disk := &disks.Data[i]
		out[i].Policy = target.storage.policy
		if disk.StoragePolicy != "" {
			if err := d.checkPolicy("disks.data.storagePolicy", disk.StoragePolicy); err != nil {
				return nil, err
			}
			policy, err := r.policy(ctx, disk.StoragePolicy)
			if err != nil {
				return nil, err
			}
			out[i].Policy = policy
		}
		if disk.Datastore != "" {
			ds, name, err := r.datastore(ctx, g.Placement.Datacenter, "disks.data.datastore", disk.Datastore)
			if err != nil {
				return nil, err
			}
			if err := d.checkBounds(ctx, "disks.data.datastore", disk.Datastore, "datastores", d.bounds.Datastores, ds); err != nil {
				return nil, err
			}
			out[i].Datastore, out[i].Name = ptr.To(ds), name
		}
	}
	return out, nil
}
