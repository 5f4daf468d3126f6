package vsphere

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// ensureFields reads the keys of custom attributes, once.
func (k *tagWorker) ensureFields(ctx context.Context) {
	inv := k.session.inv
	if inv.hasFields() {
		return
	}
	k.readFields(ctx)
}

// readFields reads the keys of custom attributes again.
func (k *tagWorker) readFields(ctx context.Context) {
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
	k.session.inv.recordFields(fields)
}

func (i *inventory) hasFields() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fields != nil
}

// recordFields records the keys of custom attributes; nil if they could not be
// read.
func (i *inventory) recordFields(fields map[string]int32) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fields, i.fieldsRetryAt = fields, time.Now().Add(tagRetryInterval)
	var ids []uuid.UUID
	for id, m := range i.machines {
		if len(m.desired.Attributes) > 0 {
			ids = append(ids, id)
		}
	}
	i.notifyChanged(ids)
}

// setAttributes sets the custom attributes of a machine's VM that differ.
func (k *tagWorker) setAttributes(ctx context.Context, id uuid.UUID) *hypervisor.Error {
	vm, wrong, createMissing := k.session.inv.attributesToSet(id)
	for _, a := range wrong {
		field, err := k.field(ctx, a.Name, createMissing)
		if err == nil {
			err = k.setField(ctx, vm, field, a.Value)
		}
		if err != nil {
			return vcenter.AsError(vcenter.Classify(k.session.Server(), err))
		}
		k.session.inv.recordAttribute(id, field, a.Value)
	}
	return nil
}

func (i *inventory) attributesToSet(id uuid.UUID) (vm ref, wrong []infrav1.NovaVSphereCustomAttribute, createMissing bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, vm := i.machines[id], i.objects.byID[id]
	info := i.objects.vms[vm]
	if m == nil || info == nil {
		return vm, nil, false
	}
	return vm, i.wrongAttributes(m, info), m.desired.CreateMissing
}

// recordAttribute records an attribute before the stream reports it.
func (i *inventory) recordAttribute(id uuid.UUID, field int32, value string) {
	i.update(func(o *objectCache) []uuid.UUID {
		if info := o.vms[o.byID[id]]; info != nil {
			info.applyAttribute(field, value)
		}
		return []uuid.UUID{id}
	})
}

func (k *tagWorker) setField(ctx context.Context, vm ref, field int32, value string) error {
	err := k.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
		_, err := methods.SetField(ctx, c, &types.SetField{
			This: *c.ServiceContent.CustomFieldsManager, Entity: vm, Key: field, Value: value,
		})
		return err
	})
	if fault.Is(err, &types.InvalidArgument{}) || vcenter.IsNotFound(err) {
		k.session.inv.recordFields(nil) // the attribute may have been deleted
	}
	return err
}

func (i *inventory) fieldKey(name string) (int32, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	key, known := i.fields[name]
	return key, known
}

// field returns the key of a custom attribute. If the attribute does not
// exist, it is created if createMissing is set.
func (k *tagWorker) field(ctx context.Context, name string, createMissing bool) (int32, error) {
	inv := k.session.inv
	key, known := inv.fieldKey(name)
	if !known {
		k.readFields(ctx) // another client may have created it meanwhile
		key, known = inv.fieldKey(name)
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
		inv.recordFields(nil) // another client may have created it
		return 0, err
	}
	inv.mu.Lock()
	if inv.fields != nil {
		inv.fields[name] = key
	}
	inv.mu.Unlock()
	return key, nil
}
