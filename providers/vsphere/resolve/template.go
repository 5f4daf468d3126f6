package resolve

import (
	"context"
	"strings"

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

// templateKey is a VM that is cloned, or its snapshot.
type templateKey struct{ vm, snapshot ref }

// uuidField is the field of names that are UUIDs.
const uuidField = "uuid"

// templateName is the name of the template of g.
func templateName(g *spec.Effective) name {
	return name{field: "template", datacenter: g.Placement.Datacenter, name: g.Template.Name}
}

// resolveVM finds the VM that is cloned for g. It reads no properties of the
// VM.
func (r *Cache) resolveVM(ctx context.Context, g *spec.Effective) (ref, error) {
	id := g.Template.ID
	switch {
	case strings.HasPrefix(id, "vm-"):
		return ref{Type: "VirtualMachine", Value: id}, nil
	case id != "":
		return r.vmWithUUID(ctx, strings.ToLower(id))
	case g.Template.Name == "":
		return ref{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "neither the machine nor the NovaVSphereCluster names a template: set spec.template")
	}
	return resolveIn(ctx, r, &r.vms, templateName(g), infrav1.TemplateNotFoundReason,
		func(ctx context.Context, f *find.Finder, _ *vim25.Client) (ref, error) {
			found, err := f.VirtualMachine(ctx, g.Template.Name)
			return refOf(found, err)
		})
}

// templateAt reads the template at the reference to which g was resolved.
func (r *Cache) templateAt(ctx context.Context, g *spec.Effective, at ref) (*spec.Template, error) {
	return r.templates.get(ctx, r, templateKey{vm: at}, func(ctx context.Context, c *vim25.Client) (*spec.Template, error) {
		t, err := readTemplate(ctx, c, at)
		if vcenter.IsNotFound(err) {
			return nil, r.templateNotFound(g, at)
		}
		return t, err
	})
}

// templateNotFound drops the references to which g was resolved and that do not
// exist any more, and returns the error for that.
func (r *Cache) templateNotFound(g *spec.Effective, at ref) error {
	r.vms.drop(templateName(g))
	r.vms.drop(name{field: uuidField, name: strings.ToLower(g.Template.ID)})
	return hypervisor.Failure(infrav1.TemplateNotFoundReason, "the template %s does not exist in vCenter, or the account cannot see it", at.Value)
}

// vmWithUUID resolves a VM by its instance UUID, or else by its BIOS UUID.
func (r *Cache) vmWithUUID(ctx context.Context, id string) (ref, error) {
	return r.vms.get(ctx, r, name{field: uuidField, name: id}, func(ctx context.Context, c *vim25.Client) (ref, error) {
		for _, instance := range []bool{true, false} {
			res, err := methods.FindAllByUuid(ctx, c, &types.FindAllByUuid{
				This: *c.ServiceContent.SearchIndex, Uuid: id, VmSearch: true, InstanceUuid: ptr.To(instance),
			})
			if err != nil {
				return ref{}, err
			}
			switch len(res.Returnval) {
			case 0:
				continue
			case 1:
				return res.Returnval[0], nil
			}
			return ref{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "%d VMs have the BIOS UUID %s: use the template's instance UUID", len(res.Returnval), id)
		}
		return ref{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "no template in vCenter has the UUID %s, or the account cannot see it", id)
	})
}

// templateAtSnapshot returns the template in the state of one of its snapshots.
func (r *Cache) templateAtSnapshot(ctx context.Context, t *spec.Template, snapshot ref) (*spec.Template, error) {
	return r.templates.get(ctx, r, templateKey{t.Ref, snapshot}, func(ctx context.Context, c *vim25.Client) (*spec.Template, error) {
		var s mo.VirtualMachineSnapshot
		if err := object.NewCommon(c, snapshot).Properties(ctx, snapshot, []string{"config.hardware"}, &s); err != nil {
			return nil, err
		}
		return t.WithHardware(&s.Config.Hardware), nil
	})
}
