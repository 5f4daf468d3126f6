package vsphere

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// bounds are the objects of a vCenter that an identity allows. The zero value
// allows all objects: a cluster with a Secret of its own is limited by the
// vCenter user's permissions only.
//
// Clusters with different bounds share sessions and the names that these have
// resolved. Therefore a driver checks the bounds each time, on the object that
// was found and not on the name that led to it.
type bounds struct {
	// identity is the name of the identity; empty if there is none.
	identity string
	infrav1.NovaVSphereBounds
}

// boundsOf returns the bounds of the identity that has the credentials.
func boundsOf(login credentials.Login) bounds {
	identity, ok := login.Identity.(*infrav1.NovaVSphereIdentity)
	if !ok {
		return bounds{}
	}
	return bounds{identity: identity.Name, NovaVSphereBounds: identity.Spec.Bounds}
}

// isWithin reports whether one of entries allows the object with an inventory
// path. An entry with a leading slash is a path, any other entry is a name.
// Both allow the object and all objects below it.
func isWithin(entries, path []string) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		if !strings.HasPrefix(entry, "/") {
			return slices.Contains(path, entry)
		}
		allowed := strings.Split(strings.Trim(entry, "/"), "/")
		return len(allowed) <= len(path) && slices.Equal(allowed, path[:len(allowed)])
	})
}

// outOfBounds returns the Error for a field whose value is outside of bound.
func (b *bounds) outOfBounds(field, value, bound string) error {
	return hypervisor.Failure(infrav1.OutOfBoundsReason, "%s %q is outside of spec.bounds.%s of NovaVSphereIdentity %q", field, value, bound, b.identity)
}

// checkBounds checks the object to which the value of a field was resolved.
func (d *driver) checkBounds(ctx context.Context, field, value, bound string, entries []string, at ref) error {
	if len(entries) == 0 {
		return nil
	}
	path, err := d.session.resolver.path(ctx, at)
	if err != nil {
		return err
	}
	if !isWithin(entries, path) {
		return d.bounds.outOfBounds(field, value, bound)
	}
	return nil
}

// inventoryPath has the names of an object and of all objects above it except
// for the root folder, from the top. Objects move, so the path is read again
// after some time.
type inventoryPath struct {
	names []string
	read  time.Time
}

func (p inventoryPath) ReadAt() time.Time { return p.read }

// path returns the names on the path from the root folder to an object.
func (r *resolver) path(ctx context.Context, at ref) ([]string, error) {
	found, err := resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (inventoryPath, error) {
		content, err := mo.RetrievePropertiesEx(ctx, c, types.RetrievePropertiesEx{
			This: c.ServiceContent.PropertyCollector, SpecSet: []types.PropertyFilterSpec{ancestorsOf(at)},
		})
		if vcenter.IsNotFound(err) {
			return inventoryPath{}, hypervisor.Failure(infrav1.PlacementNotFoundReason, "%s does not exist in vCenter, or the account cannot see it", at.Value)
		}
		if err != nil {
			return inventoryPath{}, err
		}
		names, whole := ancestorNames(content, at, c.ServiceContent.RootFolder)
		if !whole {
			return inventoryPath{}, hypervisor.Failure(infrav1.PermissionDeniedReason, "the account cannot see all folders above %s, so its bounds cannot be checked", at.Value)
		}
		return inventoryPath{names: names, read: time.Now()}, nil
	}, "path", at.Type, at.Value)
	return found.names, err
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

// resolvePlacement resolves a placement within bounds.
func (d *driver) resolvePlacement(ctx context.Context, p *infrav1.NovaVSpherePlacement) (resolvedPlacement, error) {
	if err := d.checkNewFolder(ctx, p); err != nil {
		return resolvedPlacement{}, err
	}
	s, err := d.session.resolver.resolvePlacement(ctx, p)
	if err != nil {
		return s, err
	}
	if err := d.checkPool(ctx, p, s.pool); err != nil {
		return s, err
	}
	if err := d.checkFolder(ctx, p, s.folder); err != nil {
		return s, err
	}
	return s, d.checkStorageBounds(ctx, p, &s.storage)
}

func (d *driver) checkPool(ctx context.Context, p *infrav1.NovaVSpherePlacement, at ref) error {
	field, value := "placement.resourcePool", p.ResourcePool
	if value == "" && p.ComputeCluster != "" {
		field, value = "placement.computeCluster", p.ComputeCluster
	}
	return d.checkBounds(ctx, field, value, "resourcePools", d.bounds.ResourcePools, at)
}

func (d *driver) checkFolder(ctx context.Context, p *infrav1.NovaVSpherePlacement, at ref) error {
	return d.checkBounds(ctx, "placement.folder", p.Folder, "folders", d.bounds.Folders, at)
}

// checkStorageBounds checks where a placement stores disks. Of the datastores
// that fit a policy, it keeps those within bounds.
func (d *driver) checkStorageBounds(ctx context.Context, p *infrav1.NovaVSpherePlacement, s *storage) error {
	if err := d.checkPolicy("placement.storagePolicy", p.StoragePolicy); err != nil {
		return err
	}
	switch {
	case s.pod != (ref{}):
		return d.checkBounds(ctx, "placement.datastoreCluster", p.DatastoreCluster, "datastores", d.bounds.Datastores, s.pod)
	case s.candidates == nil:
		return d.checkBounds(ctx, "placement.datastore", p.Datastore, "datastores", d.bounds.Datastores, s.datastore)
	case len(d.bounds.Datastores) == 0:
		return nil
	}
	s.allowed = map[ref]bool{}
	for _, ds := range s.candidates.datastores() {
		path, err := d.session.resolver.path(ctx, ds)
		if err != nil {
			return err
		}
		if isWithin(d.bounds.Datastores, path) {
			s.allowed[ds] = true
		}
	}
	if len(s.allowed) == 0 {
		return d.bounds.outOfBounds("placement.storagePolicy", p.StoragePolicy, "datastores")
	}
	return nil
}

func (d *driver) checkPolicy(field, name string) error {
	if name == "" || len(d.bounds.StoragePolicies) == 0 || slices.Contains(d.bounds.StoragePolicies, name) {
		return nil
	}
	return d.bounds.outOfBounds(field, name, "storagePolicies")
}

// checkNewFolder checks a folder that is to be created if it does not exist,
// before it is created: only an entry that is a path determines the location.
func (d *driver) checkNewFolder(ctx context.Context, p *infrav1.NovaVSpherePlacement) error {
	if len(d.bounds.Folders) == 0 || !ptr.Deref(p.CreateFolder, false) {
		return nil
	}
	r := d.session.resolver
	existing := *p
	existing.CreateFolder = nil
	at, err := r.folder(ctx, &existing)
	if err == nil {
		return d.checkFolder(ctx, p, at)
	}
	if e := vcenter.AsError(err); e == nil || e.Reason != infrav1.PlacementNotFoundReason {
		return err
	}
	top, err := r.folder(ctx, &infrav1.NovaVSpherePlacement{Datacenter: p.Datacenter})
	if err != nil {
		return err
	}
	path, err := r.path(ctx, top)
	if err != nil {
		return err
	}
	wanted := strings.Split(strings.Trim(p.Folder, "/"), "/")
	if !strings.HasPrefix(p.Folder, "/") {
		wanted = append(slices.Clone(path), wanted...)
	}
	isName := func(entry string) bool { return !strings.HasPrefix(entry, "/") }
	if !isWithin(slices.DeleteFunc(slices.Clone(d.bounds.Folders), isName), wanted) {
		return d.bounds.outOfBounds("placement.folder", p.Folder, "folders")
	}
	return nil
}

// network resolves a network within bounds.
func (d *driver) network(ctx context.Context, dc, name string) (network, error) {
	found, err := d.session.resolver.network(ctx, dc, name)
	if err != nil {
		return found, err
	}
	return found, d.checkBounds(ctx, "network", name, "networks", d.bounds.Networks, found.ref)
}

// template resolves a template that is in the inventory, and reads it if it is
// within bounds.
func (d *driver) template(ctx context.Context, g *spec.Effective) (*spec.Template, error) {
	at, err := d.session.resolver.resolveVM(ctx, g)
	if err != nil {
		return nil, err
	}
	if len(d.bounds.ContentLibraries) > 0 && len(d.bounds.Templates) == 0 {
		return nil, d.bounds.outOfBounds("template", g.Template.String(), "contentLibraries")
	}
	if err := d.checkBounds(ctx, "template", g.Template.String(), "templates", d.bounds.Templates, at); err != nil {
		return nil, err
	}
	return d.checkedTemplate(ctx, g, at)
}

// item resolves a library item within bounds.
func (d *driver) item(ctx context.Context, g *spec.Effective) (libraryItem, error) {
	of := &g.Template.ContentLibrary
	if len(d.bounds.Templates)+len(d.bounds.ContentLibraries) > 0 && !slices.Contains(d.bounds.ContentLibraries, of.Library) {
		return libraryItem{}, d.bounds.outOfBounds("template", g.Template.String(), "contentLibraries")
	}
	return d.session.resolver.item(ctx, of)
}

// vmKind distinguishes templates, VMs of machines and other VMs.
type vmKind struct {
	template, machine bool
	read              time.Time
}

func (l vmKind) ReadAt() time.Time { return l.read }

// checkedTemplate reads the VM at a reference, if it may be cloned. The VM of a
// machine has the keys and the data of a workload cluster on its disks, so it
// is never allowed as a source. An identity allows templates only, unless its
// bounds allow other VMs.
func (d *driver) checkedTemplate(ctx context.Context, g *spec.Effective, at ref) (*spec.Template, error) {
	r := d.session.resolver
	is, err := resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (vmKind, error) {
		var vm mo.VirtualMachine
		err := object.NewCommon(c, at).Properties(ctx, at, []string{"config.template", "config.instanceUuid", "config.annotation"}, &vm)
		if vcenter.IsNotFound(err) {
			return vmKind{}, r.templateNotFound(g, at)
		}
		if err != nil {
			return vmKind{}, err
		}
		out := vmKind{read: time.Now()}
		if vm.Config != nil {
			id, err := uuid.Parse(vm.Config.InstanceUuid)
			out.template = vm.Config.Template
			out.machine = err == nil && id.Version() == spec.DerivedVersion || strings.HasPrefix(vm.Config.Annotation, spec.AnnotationPrefix)
		}
		return out, nil
	}, "lineage", at.Value)
	switch {
	case err != nil:
		return nil, err
	case is.template:
	case is.machine:
		return nil, hypervisor.Failure(infrav1.OutOfBoundsReason, "template %q is the VM of a machine, which is never cloned: name a template", g.Template.String())
	case d.bounds.identity != "" && !ptr.Deref(d.bounds.AllowVMSources, false):
		return nil, hypervisor.Failure(infrav1.OutOfBoundsReason,
			"template %q is a VM and not a template: convert it, or set spec.bounds.allowVMSources of NovaVSphereIdentity %q", g.Template.String(), d.bounds.identity)
	}
	return r.templateAt(ctx, g, at)
}

// allowedKeys are the keys of hardware.extraConfig that any identity allows:
// settings of processors, memory, clocks and passthrough devices that have no
// effect outside of the VM. Other keys attach devices (pciPassthru0.id), name
// files (sched.swap.dir) or open ports (RemoteDisplay.vnc.port).
var allowedKeys = []string{
	"cpuid.coresPerSocket", "devices.hotplug", "hypervisor.cpuid.v0", "log.keepOld", "log.rotateSize", "mem.hotadd", "monitor_control.",
	"numa.", "pciPassthru.", "sched.cpu.", "sched.mem.", "sched.swap.vmxSwapEnabled", "time.synchronize.", "tools.syncTime", "vcpu.hotadd",
}

// deviceSettings matches settings of a passthrough device that do not select
// the device.
var deviceSettings = regexp.MustCompile(`(?i)^pciPassthru[0-9]+\.(cfg\..+|msiEnabled)$`)

// checkExtraConfig checks the keys of hardware.extraConfig.
func (b *bounds) checkExtraConfig(options []infrav1.NovaVSphereExtraConfig) error {
	if b.identity == "" {
		return nil
	}
	for i := range options {
		key := options[i].Name
		if !isAllowedKey(allowedKeys, key) && !isAllowedKey(b.ExtraConfigKeys, key) && !deviceSettings.MatchString(key) {
			return b.outOfBounds("hardware.extraConfig", key, "extraConfigKeys")
		}
	}
	return nil
}

// isAllowedKey reports whether entries contain a key or a prefix of it that
// ends in a period or an asterisk. vCenter ignores the case of keys.
func isAllowedKey(entries []string, key string) bool {
	key = strings.ToLower(key)
	return slices.ContainsFunc(entries, func(entry string) bool {
		entry = strings.ToLower(entry)
		prefix := strings.TrimSuffix(entry, "*")
		return key == entry || (prefix != entry || strings.HasSuffix(entry, ".")) && strings.HasPrefix(key, prefix)
	})
}
