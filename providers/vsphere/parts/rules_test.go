package parts

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

func testVMRef(n string) types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "VirtualMachine", Value: n}
}

func vmSet(names ...string) map[types.ManagedObjectReference]bool {
	out := map[types.ManagedObjectReference]bool{}
	for _, n := range names {
		out[testVMRef(n)] = true
	}
	return out
}

func TestRuleChange(t *testing.T) {
	is := func(mandatory bool, vms ...string) *spec.Rule {
		return &spec.Rule{VMs: vmSet(vms...), ClusterRuleInfo: types.ClusterRuleInfo{
			Key: 7, RuleUuid: "u", Name: "r", Enabled: ptr.To(false), Mandatory: ptr.To(mandatory),
		}}
	}
	tests := []struct {
		name   string
		reason string
		is     *spec.Rule
		want   map[types.ManagedObjectReference]bool
		op     types.ArrayUpdateOperation
	}{
		{"none for one", "a rule needs two VMs", nil, vmSet("a"), ""},
		{"made", "the second VM came", nil, vmSet("a", "b"), types.ArrayUpdateOperationAdd},
		{"same", "nothing to do costs nothing", is(false, "a", "b"), vmSet("a", "b"), ""},
		{"joined", "a VM came", is(false, "a", "b"), vmSet("a", "b", "c"), types.ArrayUpdateOperationEdit},
		{"left", "a VM went", is(false, "a", "b", "c"), vmSet("a", "b"), types.ArrayUpdateOperationEdit},
		{"mandatory", "it was a requirement before", is(true, "a", "b"), vmSet("a", "b"), types.ArrayUpdateOperationEdit},
		{"removed", "one VM is left", is(false, "a", "b"), vmSet("a"), types.ArrayUpdateOperationRemove},
		{"left behind", "no member is left", is(false), vmSet(), types.ArrayUpdateOperationRemove},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			change := spec.PlannedRule{Name: "r", Mandatory: ptr.To(false), Members: tt.want}.Change(tt.is)
			switch {
			case change == nil:
				if tt.op != "" {
					t.Errorf("%s: nothing was changed", tt.reason)
				}
			case change.Operation != tt.op:
				t.Errorf("%s: got %s, want %s", tt.reason, change.Operation, tt.op)
			case tt.op == types.ArrayUpdateOperationEdit:
				info := change.Info.GetClusterRuleInfo()
				if info.Key != 7 || info.RuleUuid != "u" || *info.Enabled {
					t.Errorf("an edit keeps the other fields of the rule: %+v", info)
				}
			}
		})
	}
}

func TestRuleName(t *testing.T) {
	g := NewWithT(t)
	id := uuid.NewString()
	g.Expect(spec.RuleName(id, "ns", "tenant-md")).To(Equal("nova-ns-tenant-md-" + id))
	long := spec.RuleName(id, "namespace", strings.Repeat("group", 20)+"-1")
	other := spec.RuleName(id, "namespace", strings.Repeat("group", 20)+"-2")
	g.Expect(len(long)).To(BeNumerically("<=", spec.MaxRuleName))
	g.Expect(long).To(And(HavePrefix("nova-namespace-group"), HaveSuffix(id)))
	g.Expect(long).NotTo(Equal(other))
}

var clusterRef = types.ManagedObjectReference{Type: "ClusterComputeResource", Value: "domain-c1"}

var taskRef = types.ManagedObjectReference{Type: "Task", Value: "task-1"}

// groupTest is an inventory with VMs in one compute cluster.
type groupTest struct {
	*inventory.Inventory
	*RuleWorker
	objects *cache.Objects
	ids     map[string]uuid.UUID
}

func newGroupTest(names ...string) *groupTest {
	inv := inventory.New(func(hypervisor.Key) {}, func(hypervisor.Key) {}, time.Minute)
	c := &groupTest{Inventory: inv, RuleWorker: NewRuleWorker(nil, inv, 0), ids: map[string]uuid.UUID{}}
	inv.SetParts(&c.State)
	inv.View(func(o *cache.Objects) { c.objects = o })
	host := types.ManagedObjectReference{Type: "HostSystem", Value: "host-1"}
	c.objects.Hosts[host] = &cache.Host{Parent: clusterRef}
	c.objects.UsableHosts[clusterRef] = 10
	c.objects.Clusters[clusterRef] = cache.NewComputeCluster(&types.ClusterConfigInfoEx{DrsConfig: types.ClusterDrsConfigInfo{Enabled: ptr.To(true)}})
	for _, n := range names {
		id := uuid.NewSHA1(uuid.Nil, []byte(n))
		c.ids[n] = id
		c.objects.AssignUUID(testVMRef(n), id)
		c.objects.VMs[testVMRef(n)] = &cache.VM{Host: host, Power: types.VirtualMachinePowerStatePoweredOn}
	}
	return c
}

// setMachine records the desired state of a machine.
func (c *groupTest) setMachine(name string, spread infrav1.AntiAffinity, deleting bool) {
	key := hypervisor.Key{Name: name}
	c.SetDesired(c.ids[name], key, &spec.Desired{Rule: "r", AntiAffinity: spread}, deleting)
	c.Observe(c.ids[name], key, deleting)
}

// outOfSync reports whether the rule of a machine's group has to be changed.
func (c *groupTest) outOfSync(name string) bool {
	differences, _ := c.State.Differences(c.objects, c.ids[name])
	return len(differences) > 0
}

func (c *groupTest) setRule(vms ...string) {
	c.objects.Clusters[clusterRef].Rules["r"] = &spec.Rule{VMs: vmSet(vms...), ClusterRuleInfo: types.ClusterRuleInfo{Name: "r"}}
}

func TestPlan(t *testing.T) {
	g := NewWithT(t)
	c := newGroupTest("a", "b", "c", "d", "e")
	c.setRule("a", "d", "gone")
	c.setMachine("a", infrav1.AntiAffinityPreferred, false)
	c.setMachine("b", infrav1.AntiAffinityPreferred, false)
	c.setMachine("c", infrav1.AntiAffinityPreferred, true)
	c.setMachine("e", infrav1.AntiAffinityNone, false)
	p := c.State.planRule(c.objects, "r", clusterRef, nil)
	g.Expect(p.Members).To(Equal(vmSet("a", "b", "d")),
		"the machine of d is not known yet, c is being deleted, e wants no rule, and the VM gone does not exist")
	g.Expect(c.State.groups["r"].mandatory()).To(BeFalse())
	c.setMachine("b", infrav1.AntiAffinityRequired, false)
	g.Expect(c.State.groups["r"].mandatory()).To(BeTrue())
	c.setMachine("b", infrav1.AntiAffinityRequired, true)
	g.Expect(c.State.groups["r"].mandatory()).To(BeFalse(), "machines that are being deleted do not count")
	for n := range c.ids {
		c.Forget(c.ids[n])
	}
	g.Expect(c.State.groups).To(BeEmpty())
}

func TestRuleToLeave(t *testing.T) {
	tests := []struct {
		name   string
		inRule []string
		going  []string
		want   bool
	}{
		{"two stay", []string{"a", "b", "c"}, []string{"a"}, false},
		{"one stays", []string{"a", "b"}, []string{"a"}, true},
		{"the others go too", []string{"a", "b", "c"}, []string{"a", "b"}, true},
		{"no rule", nil, []string{"a"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			c := newGroupTest("a", "b", "c")
			if tt.inRule != nil {
				c.setRule(tt.inRule...)
			}
			for _, n := range []string{"a", "b", "c"} {
				c.setMachine(n, infrav1.AntiAffinityPreferred, false)
			}
			for _, n := range tt.going {
				c.setMachine(n, infrav1.AntiAffinityPreferred, true)
			}
			_, leave := c.State.toLeave(c.objects, c.ids["a"])
			g.Expect(leave).To(Equal(tt.want))
			_, again := c.State.toLeave(c.objects, c.ids["a"])
			g.Expect(again).To(BeFalse(), "it is tried once: a VM does not stay because of a rule")
		})
	}
}

// A change of a rule that failed is repeated before the VM is deleted. That ends after some
// attempts, except while no VM can be deleted either.
func TestRuleIsLeftAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		attempts int
	}{
		"no response":      {io.EOF, 2},
		"canceled":         {vcenter.FaultError(&types.RequestCanceled{}, ""), 2},
		"no permission":    {vcenter.FaultError(&types.NoPermission{}, ""), 2},
		"no session":       {&hypervisor.Error{Reason: infrav1.EndpointUnreachableReason, Transient: true, Err: io.EOF}, 9},
		"failed to log in": {vcenter.Classify("vcenter.example", io.EOF), 9},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newGroupTest("a", "b")
			c.setRule("a", "b")
			c.setMachine("b", infrav1.AntiAffinityPreferred, false)
			c.setMachine("a", infrav1.AntiAffinityPreferred, true)
			_, leave := c.State.toLeave(c.objects, c.ids["a"])
			g.Expect(leave).To(BeTrue())
			again := 0
			for ; leave && again < 9; again++ {
				c.State.leaveAgain([]uuid.UUID{c.ids["a"], c.ids["b"]}, tc.err)
				if _, leave = c.State.toLeave(c.objects, c.ids["a"]); !leave {
					break
				}
			}
			g.Expect(again).To(Equal(tc.attempts))
		})
	}
}

// A preferred rule exists only while each of its VMs has a free host for a
// failover.
func TestRuleNeedsAFreeHost(t *testing.T) {
	tests := []struct {
		name   string
		usable int32
		spread infrav1.AntiAffinity
		inRule []string
		due    bool
		want   map[types.ManagedObjectReference]bool
	}{
		{"made", 4, infrav1.AntiAffinityPreferred, nil, true, vmSet("a", "b", "c")},
		{"kept", 4, infrav1.AntiAffinityPreferred, []string{"a", "b", "c"}, false, vmSet("a", "b", "c")},
		{"not made", 3, infrav1.AntiAffinityPreferred, nil, false, vmSet()},
		{"removed", 3, infrav1.AntiAffinityPreferred, []string{"a", "b", "c"}, true, vmSet()},
		{"unknown", 0, infrav1.AntiAffinityPreferred, nil, false, vmSet()},
		{"required", 3, infrav1.AntiAffinityRequired, []string{"a", "b"}, true, vmSet("a", "b", "c")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			c := newGroupTest("a", "b", "c")
			c.objects.UsableHosts[clusterRef] = tt.usable
			if tt.inRule != nil {
				c.setRule(tt.inRule...)
			}
			for _, n := range []string{"a", "b", "c"} {
				c.setMachine(n, tt.spread, false)
			}
			g.Expect(c.outOfSync("a")).To(Equal(tt.due))
			g.Expect(c.State.planRule(c.objects, "r", clusterRef, ptr.To(c.RuleWorker.State.groups["r"].mandatory())).Members).To(Equal(tt.want))
		})
	}
}

// While DRS is off, a preferred rule is not requested, but a required one is.
func TestNoDRS(t *testing.T) {
	g := NewWithT(t)
	c := newGroupTest("a", "b")
	c.objects.Clusters[clusterRef].DRS = false
	c.setMachine("a", infrav1.AntiAffinityPreferred, false)
	c.setMachine("b", infrav1.AntiAffinityPreferred, false)
	due := func() bool {
		return c.outOfSync("a")
	}
	g.Expect(due()).To(BeFalse())
	c.setMachine("a", infrav1.AntiAffinityRequired, false)
	g.Expect(due()).To(BeTrue())
	c.objects.Clusters[clusterRef].DRS = true
	c.setMachine("a", infrav1.AntiAffinityPreferred, false)
	g.Expect(due()).To(BeTrue())
	c.objects.Hosts[c.objects.VMs[testVMRef("a")].Host].Parent = types.ManagedObjectReference{Type: "ComputeResource", Value: "domain-s1"}
	g.Expect(due()).To(BeFalse(), "a host of its own has no rules")
}

// A rule that a task is about to create counts as existing, until vCenter
// reports otherwise or the task fails.
func TestPendingRule(t *testing.T) {
	g := NewWithT(t)
	c := newGroupTest("a", "b")
	c.setMachine("a", infrav1.AntiAffinityPreferred, false)
	c.setMachine("b", infrav1.AntiAffinityPreferred, false)
	outOfSync := func() bool { return c.Observe(c.ids["a"], hypervisor.Key{Name: "a"}, false).VM.OutOfSync != "" }
	g.Expect(outOfSync()).To(BeTrue())
	change := c.State.plan(c.objects, clusterRef, []uuid.UUID{c.ids["a"], c.ids["b"]})
	g.Expect(change.spec.RulesSpec).To(HaveLen(1), "one change for all that wait")
	ended := c.recordPending(clusterRef, taskRef, change)
	g.Expect(outOfSync()).To(BeFalse())
	c.Update(func(o *cache.Objects) []uuid.UUID {
		o.Tasks[taskRef] = &cache.Task{State: types.TaskInfoStateError, Failure: &types.LocalizedMethodFault{Fault: &types.ConcurrentAccess{}}}
		return nil
	})
	g.Expect(ended).To(BeClosed())
	g.Expect(outOfSync()).To(BeTrue())
	c.endChange(clusterRef, taskRef)
	g.Expect(c.objects.Clusters[clusterRef].Stale).To(BeTrue(), "the rules are read again before the next change")
}

// VMs in several compute clusters have a rule in each cluster, and a VM that
// was moved leaves its old rule.
func TestRulesOfSeveralClusters(t *testing.T) {
	g := NewWithT(t)
	c := newGroupTest("a", "b", "c", "d")
	far, host := types.ManagedObjectReference{Type: "ClusterComputeResource", Value: "domain-c2"}, types.ManagedObjectReference{Type: "HostSystem", Value: "host-2"}
	c.objects.Hosts[host] = &cache.Host{Parent: far}
	c.objects.UsableHosts[far] = 10
	c.objects.Clusters[far] = cache.NewComputeCluster(&types.ClusterConfigInfoEx{DrsConfig: types.ClusterDrsConfigInfo{Enabled: ptr.To(true)}})
	c.objects.VMs[testVMRef("c")].Host, c.objects.VMs[testVMRef("d")].Host = host, host
	for n := range c.ids {
		c.setMachine(n, infrav1.AntiAffinityPreferred, false)
	}
	g.Expect(c.State.planRule(c.objects, "r", clusterRef, nil).Members).To(Equal(vmSet("a", "b")))
	g.Expect(c.State.planRule(c.objects, "r", far, nil).Members).To(Equal(vmSet("c", "d")))
	c.setRule("a", "b", "d")
	g.Expect(c.State.planRule(c.objects, "r", clusterRef, nil).Members).To(Equal(vmSet("a", "b")), "d runs elsewhere")
	c.objects.VMs[testVMRef("d")].Host = c.objects.VMs[testVMRef("a")].Host
	g.Expect(c.State.planRule(c.objects, "r", far, nil).Change(nil)).To(BeNil(), "c is alone there")
	g.Expect(c.State.planRule(c.objects, "r", clusterRef, nil).Members).To(Equal(vmSet("a", "b", "d")))
}

// One change of a compute cluster adds all VMs that wait, and keeps foreign
// VMs.
func TestGroupChanges(t *testing.T) {
	g := NewWithT(t)
	c := newGroupTest("a", "b", "c", "d")
	c.objects.Clusters[clusterRef].Groups["vms"] = &spec.Group{ClusterGroupInfo: types.ClusterGroupInfo{Name: "vms"}, VMs: vmSet("foreign", "d")}
	key := func(name string) hypervisor.Key { return hypervisor.Key{Name: name} }
	for name, group := range map[string]string{"a": "vms", "b": "vms", "c": "none", "d": "vms"} {
		c.SetDesired(c.ids[name], key(name), &spec.Desired{VMGroup: group}, name == "b")
		c.Observe(c.ids[name], key(name), name == "b")
	}
	due := c.outOfSync
	g.Expect(due("a")).To(BeTrue())
	g.Expect(due("c")).To(BeTrue(), "its group may be created later, and until then the machine is out of sync")
	g.Expect(due("d")).To(BeFalse())
	change := c.State.plan(c.objects, clusterRef, []uuid.UUID{c.ids["a"], c.ids["b"], c.ids["c"], c.ids["d"]})
	g.Expect(change.spec.RulesSpec).To(BeEmpty())
	g.Expect(change.spec.GroupSpec).To(HaveLen(1))
	g.Expect(change.spec.GroupSpec[0].Info.(*types.ClusterVmGroup).Vm).To(Equal([]types.ManagedObjectReference{testVMRef("a"), testVMRef("d"), testVMRef("foreign")}), "b is being deleted")
	g.Expect(change.missing).To(Equal(map[uuid.UUID]string{c.ids["c"]: "none"}))

	ended := c.recordPending(clusterRef, taskRef, change)
	g.Expect(due("a")).To(BeFalse(), "a task is about to add it")
	c.Update(func(o *cache.Objects) []uuid.UUID {
		o.Tasks[taskRef] = &cache.Task{State: types.TaskInfoStateError, Failure: &types.LocalizedMethodFault{Fault: &types.ConcurrentAccess{}}}
		return nil
	})
	g.Expect(ended).To(BeClosed())
	g.Expect(due("a")).To(BeTrue())
}
