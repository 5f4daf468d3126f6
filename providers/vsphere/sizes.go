package vsphere

import (
	"reflect"

	"github.com/google/uuid"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// sizePart compares the sizes of VMs with those of their machines. It has no worker:
// the driver changes the VM itself.
type sizePart struct {
	machines map[uuid.UUID]*vspherev1.NovaVSphereMachine
}

// Name is the name of the part's Syncer.
func (*sizePart) Name() string { return hypervisor.Resize }

// Set records the machine.
func (s *sizePart) Set(id uuid.UUID, desired *spec.Desired, _ bool) (changed bool) {
	if s.machines == nil {
		s.machines = map[uuid.UUID]*vspherev1.NovaVSphereMachine{}
	}
	was, is := s.machines[id], desired.Machine
	s.machines[id] = is
	return was != nil && !reflect.DeepEqual(was.Spec.Hardware, is.Spec.Hardware)
}

// Created does nothing: a new VM has the sizes of its machine.
func (*sizePart) Created(uuid.UUID, ref) {}

// Differences lists the increases that are due.
func (s *sizePart) Differences(o *cache.Objects, id uuid.UUID) (differences []string, known bool) {
	info, m := o.VMs[o.ByID[id]], s.machines[id]
	if info == nil || m == nil || info.Sizes.CPUs == 0 {
		return nil, false
	}
	due, _ := kit.Increases(m, info.Sizes.Of(m))
	for _, size := range due {
		differences = append(differences, kit.SizeText(size))
	}
	return differences, true
}

// Forget drops a machine that was deleted.
func (s *sizePart) Forget(id uuid.UUID) { delete(s.machines, id) }
