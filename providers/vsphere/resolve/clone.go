package resolve

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// CloneInputs resolves the objects that a machine names. Names that are
// resolved already need no request.
func (r *Resolver) CloneInputs(ctx context.Context, id uuid.UUID, m *vspherev1.NovaVSphereMachine, l hypervisor.CreateOptions) (p spec.Clone, target Placement, err error) {
	if err := r.bounds.checkExtraConfig(m.Spec.Hardware.ExtraConfig); err != nil {
		return p, target, err
	}
	if p.Effective, err = spec.NewEffective(r.cluster, &m.Spec, l.Zone); err != nil {
		return p, target, err
	}
	if p.NICs, err = spec.NewNICs(id, p.Interfaces, l.Interfaces); err != nil {
		return p, target, err
	}
	if target, err = r.resolvePlacement(ctx, &p.Placement); err != nil {
		return p, target, err
	}
	if p.Template, err = r.source(ctx, hypervisor.KeyOf(m), &p.Effective, &target); err != nil {
		return p, target, err
	}
	if p.Source, err = p.Template.Source(m.Spec.CloneMode, p.Effective.Template.Snapshot, &m.Spec.Disks); err != nil {
		r.cache.DropAll() // the missing snapshot may be taken later
		return p, target, err
	}
	if p.Source.Snapshot != nil {
		if p.Template, err = r.cache.templateAtSnapshot(ctx, p.Template, *p.Source.Snapshot); err != nil {
			return p, target, err
		}
	}
	for i := range p.NICs {
		if p.NICs[i].Network == "" {
			return p, target, kit.InvalidSpec("network.interfaces[%d].network is not set, and neither is spec.network of the NovaVSphereCluster", i)
		}
		found, err := r.network(ctx, p.Placement.Datacenter, p.NICs[i].Network)
		if err != nil {
			return p, target, err
		}
		p.Backings = append(p.Backings, found.backing)
	}
	p.DiskPlacements, err = r.dataDiskPlacements(ctx, &p.Effective, &m.Spec.Disks, &target)
	return p, target, err
}

// Datastore chooses the datastore of a clone. It is called right before the
// clone is requested, because the chosen datastore counts the space as used.
func (r *Resolver) Datastore(ctx context.Context, at *Placement, required int64, req *types.CloneVM_Task) (types.ManagedObjectReference, error) {
	switch {
	case at.storage.pod != (ref{}):
		return r.recommendDatastore(ctx, at.storage.pod, req)
	case at.storage.candidates != nil:
		return at.storage.candidates.pick(required, at.storage.allowed), nil
	default:
		return at.storage.datastore, nil
	}
}

// TemplateRefs returns the templates from which the VM of m may be cloned, in
// any failure domain. An object that cannot be resolved cannot be cloned
// either.
func (r *Resolver) TemplateRefs(ctx context.Context, m *vspherev1.NovaVSphereMachine) ([]types.ManagedObjectReference, error) {
	var found []ref
	for _, zone := range spec.Zones(r.cluster) {
		g, err := spec.NewEffective(r.cluster, &m.Spec, zone)
		if err != nil {
			continue
		}
		at, err := r.templateRef(ctx, &g)
		if IsUnresolved(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if at != (ref{}) {
			found = append(found, at)
		}
	}
	return found, nil
}

// IsUnresolved reports whether err is about an object that a machine names,
// and not about the connection to vCenter.
func IsUnresolved(err error) bool {
	switch hypervisor.ReasonFor(err, "") {
	case infrav1.TemplateNotFoundReason, infrav1.PlacementNotFoundReason, infrav1.NameConflictReason, infrav1.InvalidSpecReason, infrav1.InsufficientResourcesReason,
		infrav1.OutOfBoundsReason:
		return true
	}
	return false
}

// templateRef returns the template that is cloned for g. It returns none for an
// image that does not exist yet.
func (r *Resolver) templateRef(ctx context.Context, g *spec.Effective) (ref, error) {
	if g.Template.ContentLibrary.Item == "" {
		t, err := r.template(ctx, g)
		if err != nil {
			return ref{}, err
		}
		return t.Ref, nil
	}
	item, err := r.item(ctx, g)
	if err != nil || item.vm != (ref{}) {
		return item.vm, err
	}
	to, err := r.resolvePlacement(ctx, &g.Placement)
	if err != nil {
		return ref{}, err
	}
	i := newImage(item, &to)
	state, err := r.cache.image(ctx, &i)
	return state.vm, err
}

// SizeTemplate returns the template from which machines are cloned in a failure
// domain, or nil for an image that does not exist yet.
func (r *Resolver) SizeTemplate(ctx context.Context, machine *vspherev1.NovaVSphereMachineSpec, zone string) (*spec.Template, error) {
	g, err := spec.NewEffective(r.cluster, machine, zone)
	if err != nil {
		return nil, err
	}
	at, err := r.templateRef(ctx, &g)
	if err != nil || at == (ref{}) {
		return nil, err
	}
	return r.cache.templateAt(ctx, &g, at)
}

// source resolves the template from which the VM of a machine is
// cloned. The image of a library item is stored in target.
func (r *Resolver) source(ctx context.Context, key hypervisor.Key, g *spec.Effective, target *Placement) (*spec.Template, error) {
	if g.Template.ContentLibrary.Item != "" {
		return r.image(ctx, key, g, target)
	}
	return r.template(ctx, g)
}

// image resolves the template from which VMs of a library item are cloned. If
// it does not exist, it is created; the machine waits meanwhile.
func (r *Resolver) image(ctx context.Context, key hypervisor.Key, g *spec.Effective, target *Placement) (*spec.Template, error) {
	item, err := r.item(ctx, g)
	if err != nil {
		return nil, err
	}
	if item.vm != (ref{}) {
		return r.checkedTemplate(ctx, g, item.vm)
	}
	i := newImage(item, target)
	state, err := r.cache.image(ctx, &i)
	if err != nil || state.template != nil {
		return state.template, err
	}
	err = r.cache.images.ensure(imageKey{i.target.Folder, i.name}, key, r.cache.notify, func(failures int) error {
		i.failures = failures
		return r.cache.createImage(&i)
	})
	if err != nil {
		return nil, err
	}
	return nil, hypervisor.Waiting(infrav1.CreatingReason, "Deploying %s once, to clone it from then on", g.Template.String())
}

// recommendDatastore requests a recommendation of a datastore of a pod for a
// clone from Storage DRS.
func (r *Resolver) recommendDatastore(ctx context.Context, pod ref, req *types.CloneVM_Task) (ref, error) {
	var res *types.RecommendDatastoresResponse
	err := r.cache.session.Call(ctx, func(ctx context.Context, c *vim25.Client) (err error) {
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
		r.cache.DropAll()
	}
	if err != nil {
		return ref{}, vcenter.Classify(r.cache.session.Server(), err)
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
func (r *Resolver) dataDiskPlacements(ctx context.Context, g *spec.Effective, disks *vspherev1.NovaVSphereDisks, target *Placement) ([]spec.DiskPlacement, error) {
	out := make([]spec.DiskPlacement, len(disks.Data))
	for i := range disks.Data {
		disk := &disks.Data[i]
		out[i].Policy = target.storage.policy
		if disk.StoragePolicy != "" {
			if err := r.checkPolicy("disks.data.storagePolicy", disk.StoragePolicy); err != nil {
				return nil, err
			}
			policy, err := r.cache.policy(ctx, disk.StoragePolicy)
			if err != nil {
				return nil, err
			}
			out[i].Policy = policy
		}
		if disk.Datastore != "" {
			ds, name, err := r.cache.datastore(ctx, g.Placement.Datacenter, "disks.data.datastore", disk.Datastore)
			if err != nil {
				return nil, err
			}
			if err := r.checkBounds(ctx, "disks.data.datastore", disk.Datastore, "datastores", r.bounds.Datastores, ds); err != nil {
				return nil, err
			}
			out[i].Datastore, out[i].Name = ptr.To(ds), name
		}
	}
	return out, nil
}
