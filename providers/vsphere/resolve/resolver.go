package resolve

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// Resolver resolves names for one cluster, within the bounds of its identity.
type Resolver struct {
	cache   *Cache
	cluster *vspherev1.NovaVSphereClusterSpec
	bounds  Bounds
}

// NewResolver returns the Resolver of a cluster whose identity has bounds.
func NewResolver(c *Cache, cluster *vspherev1.NovaVSphereClusterSpec, b Bounds) *Resolver {
	return &Resolver{cache: c, cluster: cluster, bounds: b}
}

// checkBounds checks the object to which the value of a field was resolved.
func (r *Resolver) checkBounds(ctx context.Context, field, value, bound string, entries []string, at ref) error {
	if len(entries) == 0 {
		return nil
	}
	path, err := r.cache.path(ctx, at)
	if err != nil {
		return err
	}
	if !isWithin(entries, path) {
		return r.bounds.outOfBounds(field, value, bound)
	}
	return nil
}

// resolvePlacement resolves a placement within bounds.
func (r *Resolver) resolvePlacement(ctx context.Context, p *vspherev1.NovaVSpherePlacement) (Placement, error) {
	if err := r.checkNewFolder(ctx, p); err != nil {
		return Placement{}, err
	}
	s, err := r.cache.resolvePlacement(ctx, p)
	if err != nil {
		return s, err
	}
	if err := r.checkPool(ctx, p, s.Pool); err != nil {
		return s, err
	}
	if err := r.checkFolder(ctx, p, s.Folder); err != nil {
		return s, err
	}
	return s, r.checkStorageBounds(ctx, p, &s.storage)
}

func (r *Resolver) checkPool(ctx context.Context, p *vspherev1.NovaVSpherePlacement, at ref) error {
	field, value := "placement.resourcePool", p.ResourcePool
	if value == "" && p.ComputeCluster != "" {
		field, value = "placement.computeCluster", p.ComputeCluster
	}
	return r.checkBounds(ctx, field, value, "resourcePools", r.bounds.ResourcePools, at)
}

func (r *Resolver) checkFolder(ctx context.Context, p *vspherev1.NovaVSpherePlacement, at ref) error {
	return r.checkBounds(ctx, "placement.folder", p.Folder, "folders", r.bounds.Folders, at)
}

// checkStorageBounds checks where a placement stores disks. Of the datastores
// that fit a policy, it keeps those within bounds.
func (r *Resolver) checkStorageBounds(ctx context.Context, p *vspherev1.NovaVSpherePlacement, s *storage) error {
	if err := r.checkPolicy("placement.storagePolicy", p.StoragePolicy); err != nil {
		return err
	}
	switch {
	case s.pod != (ref{}):
		return r.checkBounds(ctx, "placement.datastoreCluster", p.DatastoreCluster, "datastores", r.bounds.Datastores, s.pod)
	case s.candidates == nil:
		return r.checkBounds(ctx, "placement.datastore", p.Datastore, "datastores", r.bounds.Datastores, s.datastore)
	case len(r.bounds.Datastores) == 0:
		return nil
	}
	s.allowed = map[ref]bool{}
	for _, ds := range s.candidates.datastores() {
		path, err := r.cache.path(ctx, ds)
		if err != nil {
			return err
		}
		if isWithin(r.bounds.Datastores, path) {
			s.allowed[ds] = true
		}
	}
	if len(s.allowed) == 0 {
		return r.bounds.outOfBounds("placement.storagePolicy", p.StoragePolicy, "datastores")
	}
	return nil
}

func (r *Resolver) checkPolicy(field, name string) error {
	if name == "" || len(r.bounds.StoragePolicies) == 0 || slices.Contains(r.bounds.StoragePolicies, name) {
		return nil
	}
	return r.bounds.outOfBounds(field, name, "storagePolicies")
}

// checkNewFolder checks a folder that is to be created if it does not exist,
// before it is created: only an entry that is a path determines the location.
func (r *Resolver) checkNewFolder(ctx context.Context, p *vspherev1.NovaVSpherePlacement) error {
	if len(r.bounds.Folders) == 0 || !ptr.Deref(p.CreateFolder, false) {
		return nil
	}
	existing := *p
	existing.CreateFolder = nil
	at, err := r.cache.folder(ctx, &existing)
	if err == nil {
		return r.checkFolder(ctx, p, at)
	}
	if e := vcenter.AsError(err); e == nil || e.Reason != infrav1.PlacementNotFoundReason {
		return err
	}
	top, err := r.cache.folder(ctx, &vspherev1.NovaVSpherePlacement{Datacenter: p.Datacenter})
	if err != nil {
		return err
	}
	path, err := r.cache.path(ctx, top)
	if err != nil {
		return err
	}
	wanted := strings.Split(strings.Trim(p.Folder, "/"), "/")
	if !strings.HasPrefix(p.Folder, "/") {
		wanted = append(slices.Clone(path), wanted...)
	}
	isName := func(entry string) bool { return !strings.HasPrefix(entry, "/") }
	if !isWithin(slices.DeleteFunc(slices.Clone(r.bounds.Folders), isName), wanted) {
		return r.bounds.outOfBounds("placement.folder", p.Folder, "folders")
	}
	return nil
}

// network resolves a network within bounds.
func (r *Resolver) network(ctx context.Context, dc, name string) (network, error) {
	found, err := r.cache.network(ctx, dc, name)
	if err != nil {
		return found, err
	}
	return found, r.checkBounds(ctx, "network", name, "networks", r.bounds.Networks, found.ref)
}

// template resolves a template that is in the inventory, and reads it if it is
// within bounds.
func (r *Resolver) template(ctx context.Context, g *spec.Effective) (*spec.Template, error) {
	at, err := r.cache.resolveVM(ctx, g)
	if err != nil {
		return nil, err
	}
	if len(r.bounds.ContentLibraries) > 0 && len(r.bounds.Templates) == 0 {
		return nil, r.bounds.outOfBounds("template", g.Template.String(), "contentLibraries")
	}
	if err := r.checkBounds(ctx, "template", g.Template.String(), "templates", r.bounds.Templates, at); err != nil {
		return nil, err
	}
	return r.checkedTemplate(ctx, g, at)
}

// item resolves a library item within bounds.
func (r *Resolver) item(ctx context.Context, g *spec.Effective) (libraryItem, error) {
	of := &g.Template.ContentLibrary
	if len(r.bounds.Templates)+len(r.bounds.ContentLibraries) > 0 && !slices.Contains(r.bounds.ContentLibraries, of.Library) {
		return libraryItem{}, r.bounds.outOfBounds("template", g.Template.String(), "contentLibraries")
	}
	return r.cache.item(ctx, of)
}

// vmKind distinguishes templates, VMs of machines and other VMs.
type vmKind struct {
	template, machine bool
}

// checkedTemplate reads the VM at a reference, if it may be cloned. The VM of a
// machine has the keys and the data of a workload cluster on its disks, so it
// is never allowed as a source. An identity allows templates only, unless its
// bounds allow other VMs.
func (r *Resolver) checkedTemplate(ctx context.Context, g *spec.Effective, at ref) (*spec.Template, error) {
	is, err := r.cache.kinds.get(ctx, r.cache, at, func(ctx context.Context, c *vim25.Client) (vmKind, error) {
		var vm mo.VirtualMachine
		err := object.NewCommon(c, at).Properties(ctx, at, []string{"config.template", "config.instanceUuid", "config.annotation"}, &vm)
		if vcenter.IsNotFound(err) {
			return vmKind{}, r.cache.templateNotFound(g, at)
		}
		if err != nil {
			return vmKind{}, err
		}
		out := vmKind{}
		if vm.Config != nil {
			id, err := uuid.Parse(vm.Config.InstanceUuid)
			out.template = vm.Config.Template
			out.machine = err == nil && id.Version() == spec.DerivedVersion || strings.HasPrefix(vm.Config.Annotation, spec.AnnotationPrefix)
		}
		return out, nil
	})
	switch {
	case err != nil:
		return nil, err
	case is.template:
	case is.machine:
		return nil, hypervisor.Failure(infrav1.OutOfBoundsReason, "template %q is the VM of a machine, which is never cloned: name a template", g.Template.String())
	case r.bounds.identity != "" && !ptr.Deref(r.bounds.AllowVMSources, false):
		return nil, hypervisor.Failure(infrav1.OutOfBoundsReason,
			"template %q is a VM and not a template: convert it, or set spec.bounds.allowVMSources of NovaVSphereIdentity %q", g.Template.String(), r.bounds.identity)
	}
	return r.cache.templateAt(ctx, g, at)
}
