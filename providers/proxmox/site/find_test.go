package site

import (
	"testing"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/polled"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// A container has an ID, and is never the VM of a machine.
func TestContainerWithTheID(t *testing.T) {
	g := NewWithT(t)
	s := &Session{
		guests: map[int]*pve.Resource{100: {Type: "lxc", VMID: 100}}, machines: polled.New[uuid.UUID, Machine](0), marks: map[int]plan.Mark{},
	}
	found := s.Find(uuid.New(), []int{100, 101, 102})
	g.Expect(found.Unclear).To(BeFalse())
	g.Expect(found.Free).To(Equal(101))
	g.Expect(found.Unlisted).To(Equal([]int{101, 102}))
}

// A machine is delivered with each list only while a rejected ID is checked.
func TestRejectedIDThatIsListed(t *testing.T) {
	g := NewWithT(t)
	id := uuid.New()
	s := &Session{guests: map[int]*pve.Resource{}, machines: polled.New[uuid.UUID, Machine](0), marks: map[int]plan.Mark{}}
	m := s.machines.Get(id)
	m.rejected, m.checking = 100, true
	g.Expect(s.Find(id, []int{100, 101}).Rejected).To(BeTrue())
	g.Expect(m.checking).To(BeTrue())
	s.guests[100] = &pve.Resource{Type: "lxc", VMID: 100}
	g.Expect(s.Find(id, []int{100, 101}).Rejected).To(BeFalse())
	g.Expect(m.checking).To(BeFalse())
}
