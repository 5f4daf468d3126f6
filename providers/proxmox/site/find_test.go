package site

import (
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// A container has an ID, and is never the VM of a machine.
func TestContainerWithTheID(t *testing.T) {
	g := NewWithT(t)
	s := &Session{
		guests: map[int]*pve.Resource{100: {Type: "lxc", VMID: 100}}, machines: map[uuid.UUID]*Machine{}, marks: map[int]plan.Mark{}, poll: make(chan struct{}, 1),
	}
	found := s.Find(uuid.New(), []int{100, 101, 102})
	g.Expect(found.Unclear).To(BeFalse())
	g.Expect(found.Free).To(Equal(101))
	g.Expect(found.Unlisted).To(Equal([]int{101, 102}))
}

// The clocks of the manager and of the API server differ a little: a machine that is
// slightly newer than an unknown request may have a VM.
func TestVMOfAMachineWithAnotherClock(t *testing.T) {
	g := NewWithT(t)
	started := time.Now()
	s := &Session{machines: map[uuid.UUID]*Machine{}, started: started, timeouts: DefaultTimeouts}
	for after, want := range map[time.Duration]bool{-time.Hour: true, clockSkew - time.Second: true, clockSkew + time.Second: false} {
		unknown, soon := s.MayAppear(uuid.New(), started.Add(after))
		g.Expect([]bool{unknown, soon}).To(Equal([]bool{want, want}), after.String())
	}
}

// A machine is delivered with each list only while a rejected ID is checked.
func TestRejectedIDThatIsListed(t *testing.T) {
	g := NewWithT(t)
	id := uuid.New()
	s := &Session{
		guests: map[int]*pve.Resource{}, machines: map[uuid.UUID]*Machine{id: {rejected: 100, checking: true}}, marks: map[int]plan.Mark{}, poll: make(chan struct{}, 1),
	}
	g.Expect(s.Find(id, []int{100, 101}).Rejected).To(BeTrue())
	g.Expect(s.machines[id].checking).To(BeTrue())
	s.guests[100] = &pve.Resource{Type: "lxc", VMID: 100}
	g.Expect(s.Find(id, []int{100, 101}).Rejected).To(BeFalse())
	g.Expect(s.machines[id].checking).To(BeFalse())
}
