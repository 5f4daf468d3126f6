package resolve

import (
	"context"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// session is the session of a Cache.
type session interface {
	Call(ctx context.Context, request func(context.Context, *vim25.Client) error) error
	CallREST(ctx context.Context, request func(context.Context, *rest.Client) error) error
	RoundTripper(next soap.RoundTripper) soap.RoundTripper
	Server() string
	Done() <-chan struct{}
}

// Cache resolves names and inventory paths to references, and caches the
// results. The driver drops all results when vCenter reports that one of the
// objects does not exist any more.
type Cache struct {
	// Now returns the time. Tests replace it.
	Now func() time.Time

	session session
	// retryInterval is the time until the progress of an image is read again.
	retryInterval time.Duration
	// notify queues a machine.
	notify func(hypervisor.Key)
	images images

	datacenters table[string, *object.Datacenter]
	refs        table[name, ref]
	computes    table[name, compute]
	networks    table[name, network]
	datastores  table[name, named]
	owners      table[ref, ref]
	hostGroups  table[hostGroup, []ref]
	policies    table[string, string]
	candidates  table[candidatesKey, *datastoreCandidates]
	paths       table[ref, []string]
	vms         table[name, ref]
	kinds       table[ref, vmKind]
	templates   table[templateKey, *spec.Template]
	items       table[vspherev1.NovaVSphereLibraryItem, libraryItem]
	imageStates table[imageKey, imageState]
	tags        table[ref, map[vspherev1.NovaVSphereTag]bool]
}

// NewCache returns the cache of a session. It calls notify for the machines
// that wait for an image.
func NewCache(s *vcenter.Session, notify func(hypervisor.Key)) *Cache {
	c := &Cache{Now: time.Now, session: s, retryInterval: s.Timeouts.Lag / 3, notify: notify}
	c.candidates.ages, c.paths.ages, c.vms.ages, c.kinds.ages, c.templates.ages, c.items.ages = true, true, true, true, true, true
	return c
}

// DropAll drops all results.
func (r *Cache) DropAll() {
	for _, t := range []interface{ dropAll() }{
		&r.datacenters, &r.refs, &r.computes, &r.networks, &r.datastores, &r.owners, &r.hostGroups, &r.policies,
		&r.candidates, &r.paths, &r.vms, &r.kinds, &r.templates, &r.items, &r.imageStates, &r.tags,
	} {
		t.dropAll()
	}
}

// DropCapacity drops the results about the free space of datastores and the
// capacity of hosts.
func (r *Cache) DropCapacity() {
	r.candidates.dropAll()
	r.hostGroups.dropAll()
}

// DropTemplates drops the results about templates, and the references of
// their names.
func (r *Cache) DropTemplates() {
	r.templates.dropAll()
	r.vms.dropAll()
}

// name is the name of an object in a datacenter, and the field that has it.
// variant distinguishes results with the same name that are resolved in
// different ways.
type name struct{ field, datacenter, name, variant string }

// datacenter resolves a datacenter; if name is empty, the only datacenter of
// the vCenter.
func (r *Cache) datacenter(ctx context.Context, name string) (*object.Datacenter, error) {
	return r.datacenters.get(ctx, r, name, func(ctx context.Context, c *vim25.Client) (*object.Datacenter, error) {
		dc, err := find.NewFinder(c, false).DatacenterOrDefault(ctx, name)
		if err != nil {
			return nil, vcenter.FinderError(infrav1.PlacementNotFoundReason, "placement.datacenter", name, err)
		}
		return dc, nil
	})
}

// resolveIn resolves an object inside a datacenter. reason is the reason of the
// error if it is not found.
func resolveIn[T any](ctx context.Context, r *Cache, t *table[name, T], key name, reason string, read func(context.Context, *find.Finder, *vim25.Client) (T, error)) (T, error) {
	parent, err := r.datacenter(ctx, key.datacenter)
	if err != nil {
		var none T
		return none, err
	}
	return t.get(ctx, r, key, func(ctx context.Context, c *vim25.Client) (T, error) {
		// The datacenter may come from an earlier client.
		here := object.NewDatacenter(c, parent.Reference())
		here.InventoryPath = parent.InventoryPath
		found, err := read(ctx, find.NewFinder(c, false).SetDatacenter(here), c)
		if err != nil {
			return found, vcenter.FinderError(reason, key.field, key.name, err)
		}
		return found, nil
	})
}

// refOf returns the reference of an object that a finder found. The object's
// client is dropped, because the session may log in again.
func refOf[T object.Reference](found T, err error) (ref, error) {
	if err != nil {
		return ref{}, err
	}
	return found.Reference(), nil
}

type ref = types.ManagedObjectReference
