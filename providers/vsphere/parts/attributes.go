package parts

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// readFields reads the keys of custom attributes.
func (k *TagWorker) readFields(ctx context.Context) {
	var manager mo.CustomFieldsManager
	err := k.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
		if c.ServiceContent.CustomFieldsManager == nil {
			return nil
		}
		at := *c.ServiceContent.CustomFieldsManager
		return object.NewCommon(c, at).Properties(ctx, at, []string{"field"}, &manager)
	})
	fields := map[string]int32{}
	for _, field := range manager.Field {
		if field.ManagedObjectType == "" || field.ManagedObjectType == "VirtualMachine" {
			fields[field.Name] = field.Key
		}
	}
	if err != nil {
		fields = nil
	}
	failure := vcenter.AsError(vcenter.Classify(k.session.Server(), err))
	k.inv.Locked(func(*cache.Objects) []uuid.UUID { return k.State.setFields(fields, failure) })
}

// setAttributes sets the custom attributes of a machine's VM that differ.
func (k *TagWorker) setAttributes(ctx context.Context, id uuid.UUID) *hypervisor.Error {
	vm, wrong, createMissing, err := k.attributesToSet(id)
	if err != nil {
		return err
	}
	for _, a := range wrong {
		field, err := k.field(ctx, a.Name, createMissing)
		if err == nil {
			err = k.setField(ctx, vm, a.Name, field, a.Value)
		}
		if err != nil {
			return vcenter.AsError(vcenter.Classify(k.session.Server(), err))
		}
		// The stream reports the attribute later.
		k.inv.Update(func(o *cache.Objects) []uuid.UUID {
			if info := o.VMs[o.ByID[id]]; info != nil {
				info.ApplyAttribute(field, a.Value)
			}
			return []uuid.UUID{id}
		})
	}
	return nil
}

// attributesToSet returns the attributes of a machine's VM that differ, or the
// error with which reading the keys of attributes failed.
func (k *TagWorker) attributesToSet(id uuid.UUID) (vm types.ManagedObjectReference, wrong []vspherev1.NovaVSphereCustomAttribute, createMissing bool, err *hypervisor.Error) {
	k.inv.Locked(func(o *cache.Objects) []uuid.UUID {
		m := k.State.machines[id]
		vm = o.ByID[id]
		if info := o.VMs[vm]; m != nil && info != nil && len(m.attributes) > 0 {
			wrong, createMissing, err = k.State.wrongAttributes(m, info), m.createMissing, k.State.fieldsErr
		}
		return nil
	})
	return vm, wrong, createMissing, err
}

func (k *TagWorker) setField(ctx context.Context, vm types.ManagedObjectReference, name string, field int32, value string) error {
	err := k.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
		_, err := methods.SetField(ctx, c, &types.SetField{
			This: *c.ServiceContent.CustomFieldsManager, Entity: vm, Key: field, Value: value,
		})
		return err
	})
	if fault.Is(err, &types.InvalidArgument{}) || vcenter.IsNotFound(err) {
		// The attribute may have been deleted.
		k.inv.Locked(func(*cache.Objects) []uuid.UUID {
			delete(k.State.fields, name)
			return nil
		})
	}
	return err
}

func (k *TagWorker) fieldKey(name string) (key int32, known bool) {
	k.inv.Locked(func(*cache.Objects) []uuid.UUID {
		key, known = k.State.fields[name]
		return nil
	})
	return key, known
}

// field returns the key of a custom attribute. If the attribute does not
// exist, it is created if createMissing is set.
func (k *TagWorker) field(ctx context.Context, name string, createMissing bool) (int32, error) {
	key, known := k.fieldKey(name)
	if !known {
		k.readFields(ctx) // another client may have created it meanwhile
		key, known = k.fieldKey(name)
	}
	if known {
		return key, nil
	}
	if !createMissing {
		return 0, hypervisor.Failure(infrav1.InvalidSpecReason,
			"vCenter has no custom attribute %q for VMs: create it, or set spec.createMissingTags to true", name)
	}
	err := k.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
		res, err := methods.AddCustomFieldDef(ctx, c, &types.AddCustomFieldDef{
			This: *c.ServiceContent.CustomFieldsManager, Name: name, MoType: "VirtualMachine",
		})
		if err == nil {
			key = res.Returnval.Key
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	k.inv.Locked(func(*cache.Objects) []uuid.UUID {
		if k.State.fields != nil {
			k.State.fields[name] = key
		}
		return nil
	})
	return key, nil
}
