package site

import (
	"testing"

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
