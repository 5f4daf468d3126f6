package parts

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// tagStates has the tags and custom attributes of machines. The lock of the
// inventory protects it.
type tagStates struct {
	machines map[uuid.UUID]*taggedMachine
	// fields are the keys of custom attributes; nil while they are not known.
	// fieldsErr is the error with which reading them failed. They are not read
	// again before fieldsRetryAt.
	fields        map[string]int32
	fieldsErr     *hypervisor.Error
	fieldsRetryAt time.Time
}

// taggedMachine has the tags and attributes of a machine.
type taggedMachine struct {
	tags          []spec.TagName
	attributes    []vspherev1.NovaVSphereCustomAttribute
	createMissing bool
	deleting      bool
	// state is the state of the tags of its VM; nil until they were read.
	state *tagState
	// newVM is the VM that this process has created for it and that has no tags
	// yet.
	newVM types.ManagedObjectReference
}

// tagState has the differences between the tags of a VM and those of its
// machine.
type tagState struct {
	missing []spec.TagName
	// wrong are the IDs of tags of an earlier value of a label.
	wrong []string
	// err is the error with which reading the tags failed.
	err *hypervisor.Error
	// retryAt is when to read again after err.
	retryAt time.Time
}

// stateAt returns the state of the tags of a machine's VM; nil if they have to
// be read.
func (m *taggedMachine) stateAt(vm types.ManagedObjectReference) *tagState {
	if m.state == nil && m.newVM == vm && vm != (types.ManagedObjectReference{}) {
		return &tagState{missing: m.tags}
	}
	return m.state
}

// taggedVM is a machine's VM and the tags of its machine.
type taggedVM struct {
	id            uuid.UUID
	vm            types.ManagedObjectReference
	tags          []spec.TagName
	createMissing bool
	state         tagState
	// known means that the tags were read, or need not be.
	known bool
}

func (m *taggedMachine) at(id uuid.UUID, vm types.ManagedObjectReference) *taggedVM {
	t := &taggedVM{id: id, vm: vm, tags: m.tags, createMissing: m.createMissing}
	if state := m.stateAt(vm); state != nil {
		t.state, t.known = *state, state.err == nil
	}
	return t
}

// Name returns the name of the part.
func (*tagStates) Name() string { return inventory.SyncTags }

// Set records the desired state of a machine.
func (s *tagStates) Set(id uuid.UUID, desired *spec.Desired, deleting bool) bool {
	m := s.machines[id]
	if m == nil {
		m = &taggedMachine{}
		s.machines[id] = m
	}
	otherTags := !slices.Equal(m.tags, desired.Tags)
	changed := otherTags || !slices.Equal(m.attributes, desired.Attributes) || m.createMissing != desired.CreateMissing
	if otherTags {
		m.state = nil
	}
	m.tags, m.attributes, m.createMissing, m.deleting = desired.Tags, slices.Clone(desired.Attributes), desired.CreateMissing, deleting
	return changed
}

// Created records that a machine's VM was just created: it has no tags yet, so
// they need not be read.
func (s *tagStates) Created(id uuid.UUID, vm types.ManagedObjectReference) {
	if m := s.machines[id]; m != nil {
		m.newVM = vm
	}
}

// Forget drops a machine.
func (s *tagStates) Forget(id uuid.UUID) { delete(s.machines, id) }

// Differences lists the tags and attributes that are out of sync. It lists none
// before they were read: most likely they are in sync.
func (s *tagStates) Differences(o *cache.Objects, id uuid.UUID) (differences []string, known bool) {
	m, vm := s.machines[id], o.ByID[id]
	info := o.VMs[vm]
	if m == nil || info == nil {
		return nil, true
	}
	state := m.stateAt(vm)
	if state != nil && len(m.tags) > 0 {
		if state.err != nil {
			differences = append(differences, "tags: "+state.err.Error())
		}
		for _, tag := range state.missing {
			differences = append(differences, fmt.Sprintf("tag %s of category %s", tag.Name, tag.Category))
		}
		if len(state.wrong) > 0 && len(state.missing) == 0 {
			differences = append(differences, "tags of an earlier label")
		}
	}
	if s.fieldsErr != nil && len(m.attributes) > 0 {
		differences = append(differences, "custom attributes: "+s.fieldsErr.Error())
	}
	for _, a := range s.wrongAttributes(m, info) {
		differences = append(differences, "custom attribute "+a.Name)
	}
	return differences, (len(m.attributes) == 0 || s.fields != nil) && (len(m.tags) == 0 || state != nil)
}

// wrongAttributes returns the attributes that do not have the requested value.
func (s *tagStates) wrongAttributes(m *taggedMachine, info *cache.VM) []vspherev1.NovaVSphereCustomAttribute {
	if s.fields == nil {
		return nil
	}
	var wrong []vspherev1.NovaVSphereCustomAttribute
	for _, a := range m.attributes {
		if field, known := s.fields[a.Name]; !known || info.Attributes[field] != a.Value {
			wrong = append(wrong, a)
		}
	}
	return wrong
}

// needsRead reports whether the tags or attributes of a machine's VM have to be
// read.
func (s *tagStates) needsRead(o *cache.Objects, id uuid.UUID) bool {
	m, vm := s.machines[id], o.ByID[id]
	if m == nil || m.deleting || o.VMs[vm] == nil {
		return false
	}
	if len(m.attributes) > 0 && s.fields == nil && time.Now().After(s.fieldsRetryAt) {
		return true
	}
	state := m.stateAt(vm)
	return len(m.tags) > 0 && (state == nil || state.err != nil && time.Now().After(state.retryAt))
}

// unread reports whether the tags or attributes of a machine's VM are not
// known.
func (s *tagStates) unread(o *cache.Objects, id uuid.UUID) bool {
	m, vm := s.machines[id], o.ByID[id]
	if m == nil {
		return false
	}
	state := m.stateAt(vm)
	return len(m.attributes) > 0 && s.fields == nil || state == nil || state.err != nil
}

// record records the state of the tags of a VM, unless the settings of its
// machine have changed meanwhile.
func (s *tagStates) record(t *taggedVM) {
	m := s.machines[t.id]
	if m == nil || !slices.Equal(m.tags, t.tags) {
		return
	}
	state := t.state
	m.state, m.newVM = &state, types.ManagedObjectReference{}
}

// setFields records the keys of custom attributes, or the error with which
// reading them failed. It returns the machines that have attributes.
func (s *tagStates) setFields(fields map[string]int32, err *hypervisor.Error) (ids []uuid.UUID) {
	s.fields, s.fieldsErr, s.fieldsRetryAt = fields, err, time.Now().Add(tagRetryInterval)
	for id, m := range s.machines {
		if len(m.attributes) > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}
