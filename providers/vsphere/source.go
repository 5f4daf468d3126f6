package vsphere

import (
	"context"
	"strings"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
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

// readTemplate reads the properties that a clone of a VM depends on.
func readTemplate(ctx context.Context, c *vim25.Client, from ref) (*spec.Template, error) {
	var vm mo.VirtualMachine
	if err := object.NewCommon(c, from).Properties(ctx, from, spec.TemplateProperties, &vm); err != nil {
		return nil, err
	}
	return spec.NewTemplate(from, &vm), nil
}

// resolveTemplate resolves the template from which the VM of a machine is
// cloned. The image of a library item is stored in target.
func (d *driver) resolveTemplate(ctx context.Context, m *infrav1.NovaVSphereMachine, g *spec.Effective, target *resolvedPlacement) (*spec.Template, error) {
	if g.Template.ContentLibrary.Item != "" {
		return d.image(ctx, m, g, target)
	}
	return d.template(ctx, g)
}

// resolvedVM is the VM to which a name, path or UUID was resolved. It may
// change at any time, so it is read again after some time.
type resolvedVM struct {
	ref  ref
	read time.Time
}

func (l resolvedVM) ReadAt() time.Time { return l.read }

// resolveVM finds the VM that is cloned for g. It reads no properties of the
// VM.
func (r *resolver) resolveVM(ctx context.Context, g *spec.Effective) (ref, error) {
	name, id := g.Template.Name, g.Template.ID
	switch {
	case strings.HasPrefix(id, "vm-"):
		return ref{Type: "VirtualMachine", Value: id}, nil
	case id != "":
		return r.vmWithUUID(ctx, strings.ToLower(id))
	case name == "":
		return ref{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "neither the machine nor the NovaVSphereCluster names a template: set spec.template")
	}
	found, err := resolveIn(ctx, r, g.Placement.Datacenter, "template", name, infrav1.TemplateNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (resolvedVM, error) {
			found, err := f.VirtualMachine(ctx, name)
			at, err := refOf(found, err)
			return resolvedVM{ref: at, read: time.Now()}, err
		})
	return found.ref, err
}

// templateAt reads the template at the reference to which g was resolved.
func (r *resolver) templateAt(ctx context.Context, g *spec.Effective, at ref) (*spec.Template, error) {
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (*spec.Template, error) {
		t, err := readTemplate(ctx, c, at)
		if vcenter.IsNotFound(err) {
			return nil, r.templateNotFound(g, at)
		}
		return t, err
	}, "reference", at.Value)
}

// templateNotFound drops the references to which g was resolved and that do not
// exist any more, and returns the error for that.
func (r *resolver) templateNotFound(g *spec.Effective, at ref) error {
	r.drop("template", g.Placement.Datacenter, g.Template.Name)
	r.drop("uuid", strings.ToLower(g.Template.ID))
	return hypervisor.Failure(infrav1.TemplateNotFoundReason, "the template %s does not exist in vCenter, or the account cannot see it", at.Value)
}

// vmWithUUID resolves a VM by its instance UUID, or else by its BIOS UUID.
func (r *resolver) vmWithUUID(ctx context.Context, id string) (ref, error) {
	found, err := resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (resolvedVM, error) {
		for _, instance := range []bool{true, false} {
			res, err := methods.FindAllByUuid(ctx, c, &types.FindAllByUuid{
				This: *c.ServiceContent.SearchIndex, Uuid: id, VmSearch: true, InstanceUuid: ptr.To(instance),
			})
			if err != nil {
				return resolvedVM{}, err
			}
			switch len(res.Returnval) {
			case 0:
				continue
			case 1:
				return resolvedVM{ref: res.Returnval[0], read: time.Now()}, nil
			}
			return resolvedVM{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "%d VMs have the BIOS UUID %s: use the template's instance UUID", len(res.Returnval), id)
		}
		return resolvedVM{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "no template in vCenter has the UUID %s, or the account cannot see it", id)
	}, "uuid", id)
	return found.ref, err
}

// templateAtSnapshot returns the template in the state of one of its snapshots.
func (r *resolver) templateAtSnapshot(ctx context.Context, t *spec.Template, snapshot ref) (*spec.Template, error) {
	return resolve(ctx, r, func(ctx context.Context, c *vim25.Client) (*spec.Template, error) {
		var s mo.VirtualMachineSnapshot
		if err := object.NewCommon(c, snapshot).Properties(ctx, snapshot, []string{"config.hardware"}, &s); err != nil {
			return nil, err
		}
		return t.WithHardware(&s.Config.Hardware), nil
	}, "snapshot", t.Ref.Value, snapshot.Value)
}
