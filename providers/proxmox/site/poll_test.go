package site

import (
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/polled"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/reads"
)

// The clones of a node without recent figures may still run.
func TestNodesWithClones(t *testing.T) {
	g := NewWithT(t)
	s := &Session{machines: polled.New[uuid.UUID, Machine](0)}
	s.nodes = pve.Resources{{Node: "a", Status: "online"}, {Node: "b", Status: "unknown"}, {Node: "c", Status: "offline"}}
	due := reads.ByNode{}
	s.dueClones(due)
	g.Expect(due).To(BeEmpty(), "no machine waits")
	s.machines.Get(uuid.New()).unseenSince = time.Now()
	s.dueClones(due)
	g.Expect(due).To(And(HaveLen(2), HaveKey("a"), HaveKey("b")))
	g.Expect(s.clones.running).To(And(HaveKey("a"), HaveKey("b")))
}

// The agent of a node that runs gets no request, until the VM was started again.
func TestRequestsToAgents(t *testing.T) {
	g := NewWithT(t)
	id := uuid.New()
	s := &Session{
		timeouts: DefaultTimeouts, machines: polled.New[uuid.UUID, Machine](0), marks: map[int]plan.Mark{},
		wake: func(...hypervisor.Key) {},
	}
	at := func(uptime int64) pve.Resources {
		return pve.Resources{{Type: "qemu", VMID: 100, Status: "running", Uptime: uptime}}
	}
	due := func() time.Duration { return time.Until(s.machines.Get(id).nextQuery).Round(time.Second) }
	s.store(1, time.Now(), at(5))
	s.Query(id, 100, true, true)
	g.Expect(due()).To(Equal(DefaultTimeouts.Agent))
	s.machines.Get(id).Network = []pve.GuestInterface{{Name: "eth0"}}
	s.Query(id, 100, true, false)
	g.Expect(due()).To(Equal(DefaultTimeouts.Detail), "the node has joined")
	s.Query(id, 100, true, false)
	s.store(2, time.Now(), at(20))
	g.Expect(due()).To(Equal(DefaultTimeouts.Detail))
	s.store(3, time.Now(), at(2))
	g.Expect(due()).To(Equal(DefaultTimeouts.Agent), "it was started again")
	g.Expect(s.machines.Get(id).quietFrom).To(BeTemporally("~", time.Now().Add(DefaultTimeouts.Restarted), time.Second))
}

// Configurations of guests and networks of nodes are kept for a short time only, also
// without another request for them.
func TestOldConfigurationsAreDropped(t *testing.T) {
	g := NewWithT(t)
	old := time.Now().Add(-2 * maxAge)
	s := &Session{
		guests: map[int]*pve.Resource{}, machines: polled.New[uuid.UUID, Machine](0), marks: map[int]plan.Mark{7: {}},
		configs:  map[int]cached[plan.Config]{100: {read: old}, 101: {read: time.Now()}},
		networks: map[string]cached[[]string]{"a": {read: old}, "b": {read: time.Now()}},
	}
	s.store(1, time.Now(), pve.Resources{{Type: "qemu", VMID: 101}})
	g.Expect(s.configs).To(And(HaveLen(1), HaveKey(101)))
	g.Expect(s.networks).To(And(HaveLen(1), HaveKey("b")))
	g.Expect(s.marks).To(BeEmpty())
}

// A status from a node is preferred to that of the list until the list has it too.
func TestStatusFromANode(t *testing.T) {
	for name, tt := range map[string]struct {
		kept, listed, reported string
		status                 string
		isNew                  bool
	}{
		"as in the list":           {"", "running", "running", "", false},
		"power-off":                {"", "running", "stopped", "stopped", true},
		"power-off that is known":  {"stopped", "running", "stopped", "stopped", false},
		"start after a power-off":  {"stopped", "running", "running", "", true},
		"start of a new VM":        {"running", "unknown", "running", "running", false},
		"the node came back":       {"", "unknown", "running", "running", true},
		"VM that the node has not": {"", "running", "", "", false},
		"unknown word":             {"stopped", "running", "flying", "stopped", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s, m := &Session{timeouts: DefaultTimeouts}, &Machine{status: tt.kept}
			g.Expect(s.setStatus(m, &pve.Resource{Status: tt.listed}, tt.reported)).To(Equal(tt.isNew))
			g.Expect(m.status).To(Equal(tt.status))
		})
	}
}

// One request to each node with VMs of machines serves all of them. Its response is ignored
// for a VM for which a request was sent after the last list.
func TestStatusesOfNodes(t *testing.T) {
	g := NewWithT(t)
	s := &Session{timeouts: DefaultTimeouts, machines: polled.New[uuid.UUID, Machine](0), guests: map[int]*pve.Resource{}}
	var woken int
	s.wake = func(...hypervisor.Key) { woken++ }
	add := func(vmid int, node string) *Machine {
		s.guests[vmid] = &pve.Resource{Type: "qemu", VMID: vmid, Node: node, Status: "running"}
		m := s.machines.Get(uuid.New())
		m.VMID = vmid
		return m
	}
	s.done = s.machines.StartList()
	off, migrated, busy, written := add(100, "a"), add(101, "b"), add(102, "a"), add(103, "a")
	s.guests[104] = &pve.Resource{Type: "qemu", VMID: 104, Node: "c", Status: "running"}
	g.Expect(s.dueStatuses()).To(And(HaveLen(2), HaveKeyWithValue("a", HaveLen(1)), HaveKeyWithValue("b", HaveLen(1))))
	busy.Busy = true
	s.machines.Written(written)
	stopped := pve.Resources{{VMID: 100, Status: "stopped"}, {VMID: 101, Status: "stopped"}, {VMID: 102, Status: "stopped"}, {VMID: 103, Status: "stopped"}}
	s.storeStatuses("a", s.done, stopped)
	g.Expect(woken).To(Equal(1))
	g.Expect(off.status).To(Equal("stopped"))
	for _, m := range []*Machine{migrated, busy, written} {
		g.Expect(m.status).To(BeEmpty())
	}
	s.done = s.machines.StartList()
	s.storeStatuses("a", s.done, stopped)
	g.Expect(written.status).To(Equal("stopped"))
}

// The list shows a complete clone before the list of tasks does. The mark of the machine is known
// once the task has ended, so the configuration is not read for it.
func TestDescriptionOfACloneWhoseTaskRuns(t *testing.T) {
	for name, tt := range map[string]struct {
		machine Machine
		reads   int
	}{
		"clone runs":             {Machine{VMID: 100, Verb: Clone, Busy: true, upid: "UPID:a"}, 0},
		"clone of another ID":    {Machine{VMID: 101, Verb: Clone, Busy: true, upid: "UPID:a"}, 1},
		"clone without response": {Machine{VMID: 100, Verb: Clone, Busy: true, upid: unknownTask}, 1},
		"clone failed":           {Machine{VMID: 100, Verb: Clone}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Session{
				machines: polled.New[uuid.UUID, Machine](0), marks: map[int]plan.Mark{100: {ID: unread}},
				guests: map[int]*pve.Resource{100: {Type: "qemu", VMID: 100, Node: "a"}},
			}
			*s.machines.Get(uuid.New()) = tt.machine
			due := reads.ByNode{}
			s.dueMarks(due)
			NewWithT(t).Expect(due["a"]).To(HaveLen(tt.reads))
		})
	}
}
