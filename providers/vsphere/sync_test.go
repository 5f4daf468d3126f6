package vsphere

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	vcenterclient "github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// newBedWithHosts returns a test environment with more hosts than any test has
// machines.
func newBedWithHosts(t *testing.T) *bed {
	t.Helper()
	return newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{Hosts: 24}})
}

// groupedMachine returns a machine of a MachineDeployment whose machines are
// kept on different hosts.
func (b *bed) groupedMachine(name, deployment string) *vspherev1.NovaVSphereMachine {
	m := b.machine(name)
	m.Labels[clusterv1.MachineDeploymentNameLabel] = deployment
	m.Spec.AntiAffinity = infrav1.AntiAffinityPreferred
	return m
}

// startAll creates the VMs of machines and waits until they run.
func (b *bed) startAll(machines ...*vspherev1.NovaVSphereMachine) {
	b.t.Helper()
	for _, m := range machines {
		b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	}
	for _, m := range machines {
		b.waitForState(m, hypervisor.Running)
	}
}

// syncAll calls Sync for machines as their controller does, until all are
// synced.
func (b *bed) syncAll(machines ...*vspherev1.NovaVSphereMachine) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		var left []string
		for _, m := range machines {
			vm, err := b.observe(m)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(vm.State).To(Equal(hypervisor.Running))
			if vm.OutOfSync != "" || vm.UserData {
				left = append(left, m.Name+": "+vm.OutOfSync)
				g.Expect(b.sync(m, true)).To(Succeed())
			}
		}
		g.Expect(left).To(BeEmpty())
	}).Should(Succeed())
}

func (b *bed) ruleOf(m *vspherev1.NovaVSphereMachine) string {
	return spec.RuleName(b.cluster.Annotations[infrav1.ClusterIDAnnotation], namespace, infrav1.AntiAffinityGroup(m))
}

// members returns the VMs in the rule of a machine's group; none if there is
// no rule.
func (b *bed) members(m *vspherev1.NovaVSphereMachine) []string {
	for _, rule := range b.vc.Rules() {
		if rule.Name == b.ruleOf(m) {
			return rule.VMs
		}
	}
	return nil
}

// failsOnce waits until observing a machine or its last action fails.
func (b *bed) failsOnce(m *vspherev1.NovaVSphereMachine) error {
	b.t.Helper()
	var err error
	b.Eventually(func() error { err = b.failure(m); return err }).Should(HaveOccurred())
	return err
}

func TestScrub(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	vm, err := b.observe(m)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(vm.UserData).To(BeTrue())
	b.Expect(b.sync(m, false)).To(Succeed())
	b.Expect(b.vmNamed("m")[0].ExtraConfig).To(HaveKey("guestinfo.userdata"), "the node may still need it")

	b.vc.ResetRequests()
	b.syncAll(m)
	b.Expect(b.vc.Requests()).To(Equal(map[string]int{"ReconfigVM_Task": 1}))
	b.Expect(b.vmNamed("m")[0].ExtraConfig).NotTo(Or(HaveKey("guestinfo.userdata"), HaveKey("guestinfo.userdata.encoding")))
	b.Expect(b.vmNamed("m")[0].ExtraConfig).To(HaveKey("guestinfo.metadata"), "its instance ID keeps the guest from booting as a new one")
	b.Expect(b.sync(m, true)).To(Succeed())
	b.Expect(b.total()).To(Equal(1), "removed settings are not removed again")

	b.connector.Close()
	b.connector = b.newConnector()
	vm = b.waitForState(m, hypervisor.Running)
	b.Expect(vm.UserData).To(BeFalse(), "a restarted manager reads that it is removed")
}

// User data is removed although the rule and the tags of the machine can never
// be set.
func TestScrubWithoutPermissionForRules(t *testing.T) {
	b := newBedWithHosts(t)
	first, second := b.groupedMachine("a", "md"), b.groupedMachine("b", "md")
	second.Spec.Tags = []vspherev1.NovaVSphereTag{{Category: "none", Name: "none"}}
	b.startAll(first)
	cluster := b.clusterRef()
	b.vc.InjectCallFault("ReconfigureComputeResource_Task", 0, &types.NoPermission{Object: &cluster, PrivilegeId: "Host.Inventory.EditCluster"}, "")
	b.startAll(second)
	b.Eventually(func(g Gomega) {
		if vm, err := b.observe(second); err == nil && vm.UserData {
			g.Expect(b.sync(second, true)).To(Succeed())
		}
		g.Expect(b.vmNamed("b")[0].ExtraConfig).NotTo(HaveKey("guestinfo.userdata"))
	}).Should(Succeed())
	b.Eventually(func() error {
		err := b.failure(second)
		if err == nil {
			err = b.sync(second, true)
		}
		return err
	}).Should(MatchError(ContainSubstring("Host.Inventory.EditCluster")))
}

// The error for a locked VM is returned, and the request is repeated only with
// the next call: the controller backs off.
func TestScrubFailure(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	b.vc.InjectFault("ReconfigVM_Task", 0, &types.TaskInProgress{}, "")
	b.vc.ResetRequests()
	b.Expect(b.sync(m, true)).To(Succeed())
	b.Expect(b.failsOnce(m)).To(MatchError(ContainSubstring("Another task is already in progress")))
	vm := b.waitForState(m, hypervisor.Running)
	b.Expect(vm.UserData).To(BeTrue())
	b.Consistently(b.vc.Requests, "300ms").Should(Equal(map[string]int{"ReconfigVM_Task": 1, "RetrievePropertiesEx": 1}), "one task is started, and its error is read")
	b.vc.ClearFaults()
	b.syncAll(m)
}

// The objects around a VM do not delay its boot: a VM that is off is started
// first, and waits only for actions that are under way.
func TestStartBeforeSync(t *testing.T) {
	b := newBed(t)
	m := b.machine("m")
	m.Spec.Tags = []vspherev1.NovaVSphereTag{{Category: "team", Name: "red"}}
	b.startAll(m)
	b.Eventually(func() string { vm, _ := b.observe(m); return vm.OutOfSync }).ShouldNot(BeEmpty())
	b.wait(b.vm("m").PowerOff(b.ctx()))
	vm := b.waitForState(m, hypervisor.Stopped)
	b.Expect(vm.OutOfSync).To(BeEmpty())
	b.Expect(b.sync(m, true)).To(Succeed())
	b.Expect(b.connect(m).Start(b.ctx(), m)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
}

// A machine that is deleted while an object around its VM changes waits for
// that and continues without an event from outside.
func TestDeleteDuringSync(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	changes := b.connector.Changes()
	b.drain(changes)
	b.vc.SetTaskDelay("ReconfigVM_Task", soon/20)
	b.Expect(b.sync(m, true)).To(Succeed())
	vm, err := b.observe(m)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(vm.State).To(Equal(hypervisor.Running), "the VM runs on meanwhile")
	vm, err = b.observe(markDeleting(m))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(vm.State).To(Equal(hypervisor.Busy))
	b.notified(changes, "m", soon)
	b.destroyed(markDeleting(m))
}

func TestSpread(t *testing.T) {
	b := newBedWithHosts(t)
	alone := b.groupedMachine("a", "md")
	b.startAll(alone)
	b.syncAll(alone)
	b.Expect(b.vc.Rules()).To(BeEmpty(), "a rule has two VMs or more")

	second, other := b.groupedMachine("b", "md"), b.groupedMachine("c", "md-2")
	b.startAll(second, other)
	b.syncAll(alone, second, other)
	b.Expect(b.vc.Rules()).To(Equal([]vcenter.Rule{{Name: b.ruleOf(alone), VMs: []string{"a", "b"}, Enabled: true}}))

	third := b.groupedMachine("d", "md")
	b.startAll(third)
	b.syncAll(third)
	b.Expect(b.members(alone)).To(Equal([]string{"a", "b", "d"}))

	b.vc.ResetRequests()
	for range 3 {
		b.syncAll(alone, second, third)
	}
	b.Expect(b.total()).To(BeZero(), "at rest it costs nothing")

	b.destroyed(markDeleting(third))
	b.Expect(b.members(alone)).To(Equal([]string{"a", "b"}))
	b.destroyed(markDeleting(second))
	b.Expect(b.vc.Rules()).To(BeEmpty(), "the rest of the rule is deleted before its VM")
	b.waitForState(alone, hypervisor.Running)
	b.syncAll(alone)
	b.destroyed(markDeleting(alone))
}

// However many machines are created or deleted at once, the rule is changed a
// few times.
func TestAntiAffinityOfManyAtOnce(t *testing.T) {
	const n = 20
	b := newBedWithHosts(t)
	b.options.timeouts = vcenterclient.DefaultTimeouts
	b.connector = b.newConnector()
	var machines []*vspherev1.NovaVSphereMachine
	for i := range n {
		machines = append(machines, b.groupedMachine(fmt.Sprintf("m%d", i), "md"))
	}
	b.startAll(machines...)
	b.vc.ResetRequests()
	b.syncAll(machines...)
	b.Expect(b.members(machines[0])).To(HaveLen(n))
	b.Expect(b.vc.Requests()["ReconfigureComputeResource_Task"]).To(BeNumerically("<=", 3))
	b.Expect(b.vc.Requests()["ReconfigVM_Task"]).To(Equal(n))

	b.vc.ResetRequests()
	for _, m := range machines {
		_, err := b.observe(markDeleting(m))
		b.Expect(err).NotTo(HaveOccurred())
	}
	b.Eventually(func(g Gomega) {
		left := 0
		for _, m := range machines {
			vm, err := b.observe(markDeleting(m))
			g.Expect(err).NotTo(HaveOccurred())
			if vm.State == hypervisor.Running || vm.State == hypervisor.Stopped {
				g.Expect(b.connect(m).Delete(b.ctx(), markDeleting(m))).To(Succeed())
			}
			if vm.State != hypervisor.Absent {
				left++
			}
		}
		g.Expect(left).To(BeZero())
	}).Should(Succeed())
	b.Expect(b.vc.Rules()).To(BeEmpty())
	b.Expect(b.vc.Requests()["ReconfigureComputeResource_Task"]).To(Equal(1))
}

// A restarted manager knows some machines before others. No VM is removed from
// the rule because of that.
func TestAntiAffinityOverARestart(t *testing.T) {
	b := newBedWithHosts(t)
	first, second, third := b.groupedMachine("a", "md"), b.groupedMachine("b", "md"), b.groupedMachine("c", "md")
	b.startAll(first, second)
	b.syncAll(first, second)
	b.connector.Close()
	b.connector = b.newConnector()
	b.startAll(third)
	b.syncAll(third)
	b.Expect(b.members(first)).To(Equal([]string{"a", "b", "c"}))
}

func TestAntiAffinityModes(t *testing.T) {
	b := newBedWithHosts(t)
	first, second := b.groupedMachine("a", "md"), b.groupedMachine("b", "md")
	first.Spec.AntiAffinity, second.Spec.AntiAffinity = infrav1.AntiAffinityRequired, infrav1.AntiAffinityRequired
	b.startAll(first, second)
	b.syncAll(first, second)
	b.Expect(b.vc.Rules()).To(ConsistOf(HaveField("Mandatory", true)))

	first.Spec.AntiAffinity, second.Spec.AntiAffinity = infrav1.AntiAffinityPreferred, infrav1.AntiAffinityPreferred
	b.syncAll(first)
	b.syncAll(first, second)
	b.Expect(b.vc.Rules()).To(ConsistOf(HaveField("Mandatory", false)))

	first.Spec.AntiAffinity = infrav1.AntiAffinityNone
	b.syncAll(first)
	b.syncAll(first, second)
	b.Expect(b.vc.Rules()).To(BeEmpty())
}

// Another user changes the cluster meanwhile: vCenter reports the conflict,
// and the next attempt starts from the current state.
func TestAntiAffinityConflict(t *testing.T) {
	b := newBedWithHosts(t)
	first, second := b.groupedMachine("a", "md"), b.groupedMachine("b", "md")
	b.startAll(first, second)
	b.vc.InjectFault("ReconfigureComputeResource_Task", 1, &types.ConcurrentAccess{}, "")
	b.waitForState(second, hypervisor.Running)
	b.Expect(b.sync(first, false)).To(Succeed())
	b.Expect(b.failsOnce(first)).To(MatchError(ContainSubstring("another operation")))
	b.syncAll(first, second)
	b.Expect(b.members(first)).To(Equal([]string{"a", "b"}))

	// An administrator removes a VM from the rule, or the whole rule.
	for range 2 {
		cluster := object.NewClusterComputeResource(b.admin().Client, b.clusterRef())
		config, err := cluster.Configuration(b.ctx())
		b.Expect(err).NotTo(HaveOccurred())
		task, err := cluster.Reconfigure(b.ctx(), &types.ClusterConfigSpecEx{RulesSpec: []types.ClusterRuleSpec{{
			ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationRemove, RemoveKey: config.Rule[0].GetClusterRuleInfo().Key},
		}}}, true)
		b.wait(task, err)
		b.Eventually(func() string { vm, _ := b.observe(first); return vm.OutOfSync }).Should(ContainSubstring("anti-affinity"))
		b.syncAll(first, second)
		b.Expect(b.members(first)).To(Equal([]string{"a", "b"}))
	}
}

// Machines work even if the account has no permission to change the cluster.
// They report the missing permission, and can be deleted.
func TestAntiAffinityRejected(t *testing.T) {
	b := newBedWithHosts(t)
	first, second := b.groupedMachine("a", "md"), b.groupedMachine("b", "md")
	b.startAll(first, second)
	b.syncAll(first, second)
	cluster := b.clusterRef()
	b.vc.InjectCallFault("ReconfigureComputeResource_Task", 0, &types.NoPermission{Object: &cluster, PrivilegeId: "Host.Inventory.EditCluster"}, "")
	third := b.groupedMachine("c", "md")
	b.startAll(third)
	b.Expect(b.sync(third, false)).To(Succeed())
	b.Expect(b.failsOnce(third)).To(MatchError(ContainSubstring("Host.Inventory.EditCluster")))
	vm := b.waitForState(third, hypervisor.Running)
	b.Expect(vm.OutOfSync).To(ContainSubstring("anti-affinity"))

	for _, m := range []*vspherev1.NovaVSphereMachine{third, second} {
		b.Eventually(func() hypervisor.State {
			vm, err := b.observe(markDeleting(m))
			if err == nil && (vm.State == hypervisor.Running || vm.State == hypervisor.Stopped) {
				b.Expect(b.connect(m).Delete(b.ctx(), markDeleting(m))).To(Succeed())
			}
			if err != nil {
				return hypervisor.Busy
			}
			return vm.State
		}).Should(Equal(hypervisor.Absent))
	}
}

// clusterRef returns the only compute cluster.
func (b *bed) clusterRef() ref {
	b.t.Helper()
	var host mo.HostSystem
	vm := b.vm("a")
	at, err := vm.HostSystem(b.ctx())
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(at.Properties(b.ctx(), at.Reference(), []string{"parent"}, &host)).To(Succeed())
	return *host.Parent
}

// tagging returns a tag manager of another user.
func (b *bed) tagging() *tags.Manager {
	b.t.Helper()
	api := rest.NewClient(b.admin().Client)
	b.Expect(api.Login(b.ctx(), b.vc.Userinfo())).To(Succeed())
	return tags.NewManager(api)
}

// tagsOf returns the tags of a machine's VM, category and name.
func (b *bed) tagsOf(api *tags.Manager, m *vspherev1.NovaVSphereMachine) []string {
	b.t.Helper()
	attached, err := api.GetAttachedTags(b.ctx(), b.vm(m.Name))
	b.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, tag := range attached {
		category, err := api.GetCategory(b.ctx(), tag.CategoryID)
		b.Expect(err).NotTo(HaveOccurred())
		names = append(names, category.Name+"="+tag.Name)
	}
	return names
}

func TestTagsAndAttributes(t *testing.T) {
	b := newBed(t)
	m := b.machine("m")
	m.Labels["tier"] = "gold"
	m.Labels["dmz"] = ""
	m.Spec.Tags = []vspherev1.NovaVSphereTag{{Category: "team", Name: "red"}, {Category: "team", Name: "night"}}
	m.Spec.TagsFromLabels = []string{"tier", "dmz", "absent"}
	m.Spec.CustomAttributes = []vspherev1.NovaVSphereCustomAttribute{{Name: "owner", Value: "me"}}
	m.Spec.CreateMissingTags = ptr.To(true)
	b.startAll(m)
	b.Eventually(func() string { vm, _ := b.observe(m); return vm.OutOfSync }).Should(
		And(ContainSubstring("tag red of category team"), ContainSubstring("custom attribute owner")))
	b.syncAll(m)
	api := b.tagging()
	b.Expect(b.tagsOf(api, m)).To(ConsistOf("team=red", "team=night", "tier=gold", "dmz=dmz"))
	fields, err := object.GetCustomFieldsManager(b.admin().Client)
	b.Expect(err).NotTo(HaveOccurred())
	key, err := fields.FindKey(b.ctx(), "owner")
	b.Expect(err).NotTo(HaveOccurred())
	var vm mo.VirtualMachine
	b.Expect(b.vm("m").Properties(b.ctx(), b.vm("m").Reference(), []string{"customValue"}, &vm)).To(Succeed())
	b.Expect(vm.CustomValue).To(ConsistOf(&types.CustomFieldStringValue{CustomFieldValue: types.CustomFieldValue{Key: key}, Value: "me"}))

	b.vc.ResetRequests()
	for range 3 {
		b.syncAll(m)
	}
	b.Expect(b.total()).To(BeZero(), "at rest it costs nothing")

	// Tags with a new value are changed, and tags that other users attached
	// stay.
	category, err := api.GetCategory(b.ctx(), "team")
	b.Expect(err).NotTo(HaveOccurred())
	foreign, err := api.CreateTag(b.ctx(), &tags.Tag{Name: "blue", CategoryID: category.ID})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(api.AttachTag(b.ctx(), foreign, b.vm("m"))).To(Succeed())
	m.Labels["tier"] = "silver"
	m.Spec.CustomAttributes[0].Value = "you"
	b.Eventually(func() string { vm, _ := b.observe(m); return vm.OutOfSync }).Should(
		And(ContainSubstring("silver"), ContainSubstring("owner")))
	b.syncAll(m)
	b.Expect(b.tagsOf(api, m)).To(ConsistOf("team=red", "team=night", "team=blue", "tier=silver", "dmz=dmz"))
}

func TestMissingTags(t *testing.T) {
	b := newBed(t)
	m := b.machine("m")
	m.Spec.Tags = []vspherev1.NovaVSphereTag{{Category: "team", Name: "red"}}
	n := b.machine("n")
	n.Spec.CustomAttributes = []vspherev1.NovaVSphereCustomAttribute{{Name: "owner", Value: "me"}}
	b.startAll(m, n)
	for _, it := range []*vspherev1.NovaVSphereMachine{m, n} {
		b.Eventually(func() string { vm, _ := b.observe(it); return vm.OutOfSync }).ShouldNot(BeEmpty())
		b.Expect(b.sync(it, false)).To(Succeed())
		b.Expect(b.waitForError(it, infrav1.InvalidSpecReason)).To(MatchError(ContainSubstring("spec.createMissingTags")))
	}
	api := b.tagging()
	_, err := api.CreateCategory(b.ctx(), &tags.Category{Name: "team", Cardinality: "SINGLE", AssociableTypes: []string{"VirtualMachine"}})
	b.Expect(err).NotTo(HaveOccurred())
	category, err := api.GetCategory(b.ctx(), "team")
	b.Expect(err).NotTo(HaveOccurred())
	_, err = api.CreateTag(b.ctx(), &tags.Tag{Name: "red", CategoryID: category.ID})
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(func(g Gomega) {
		g.Expect(b.sync(m, false)).To(Succeed())
		vm, err := b.observe(m)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(vm.OutOfSync).To(BeEmpty())
	}).Should(Succeed())
	b.Expect(b.tagsOf(api, m)).To(ConsistOf("team=red"))
}

// A failure does not count any more once the settings that caused it have
// changed.
func TestFailureOfEarlierSettings(t *testing.T) {
	b := newBed(t)
	m := b.machine("m")
	m.Spec.Tags = []vspherev1.NovaVSphereTag{{Category: "team", Name: "red"}}
	b.startAll(m)
	b.Eventually(func() string { vm, _ := b.observe(m); return vm.OutOfSync }).ShouldNot(BeEmpty())
	b.Expect(b.sync(m, false)).To(Succeed())
	b.Expect(b.waitForError(m, infrav1.InvalidSpecReason)).To(HaveOccurred())
	vm, err := b.observe(m)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(vm.LastFailure).To(HaveOccurred(), "it stays until the next action")
	m.Spec.CreateMissingTags = ptr.To(true)
	vm, err = b.observe(m)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(vm.LastFailure).NotTo(HaveOccurred())
	b.Expect(vm.ToSync).To(ContainElement(inventory.SyncTags))
	b.syncAll(m)
}

// A VM counts as out of sync while its custom attributes cannot be set.
func TestFailedAttributesAreOutOfSync(t *testing.T) {
	for method, fails := range map[string]types.BaseMethodFault{
		"AddCustomFieldDef": &types.NoPermission{PrivilegeId: "Global.ManageCustomFields"},
		"SetField":          &types.InvalidArgument{InvalidProperty: "key"},
	} {
		t.Run(method, func(t *testing.T) {
			b := newBed(t)
			m := b.machine("m")
			m.Spec.CustomAttributes = []vspherev1.NovaVSphereCustomAttribute{{Name: "owner", Value: "me"}}
			m.Spec.CreateMissingTags = ptr.To(true)
			b.vc.InjectCallFault(method, 0, fails, "")
			b.startAll(m)
			b.Eventually(func() string { vm, _ := b.observe(m); return vm.OutOfSync }).Should(ContainSubstring("owner"))
			b.Expect(b.sync(m, false)).To(Succeed())
			b.Expect(b.failsOnce(m)).To(HaveOccurred())
			b.Consistently(func() []string { vm, _ := b.observe(m); return vm.ToSync }, "300ms").Should(ContainElement(inventory.SyncTags))
			b.vc.ClearFaults()
			b.syncAll(m)
		})
	}
}

// Machines share the requests for the objects around their VMs.
func TestRequestsOfManyMachines(t *testing.T) {
	const n = 12
	b := newBed(t)
	b.options.timeouts = vcenterclient.DefaultTimeouts
	b.connector = b.newConnector()
	var machines []*vspherev1.NovaVSphereMachine
	for i := range n {
		m := b.groupedMachine(fmt.Sprintf("m%d", i), "md")
		m.Labels["tier"] = "gold"
		m.Spec.Tags = []vspherev1.NovaVSphereTag{{Category: "team", Name: "red"}}
		m.Spec.TagsFromLabels = []string{"tier"}
		m.Spec.CreateMissingTags = ptr.To(true)
		m.Spec.CustomAttributes = []vspherev1.NovaVSphereCustomAttribute{{Name: "owner", Value: "me"}}
		machines = append(machines, m)
	}
	b.vc.ResetRequests()
	b.startAll(machines...)
	b.Eventually(func() string { vm, _ := b.observe(machines[n-1]); return vm.OutOfSync }).Should(ContainSubstring("tag"))
	b.syncAll(machines...)
	t.Logf("%d machines with everything: %v", n, b.vc.Requests())
	rest := 0
	for method, count := range b.vc.Requests() {
		switch method {
		case "CloneVM_Task", "SetField", "ReconfigVM_Task":
			b.Expect(count).To(Equal(n), method)
		case "ReconfigureComputeResource_Task":
			b.Expect(count).To(BeNumerically("<=", 4))
		case "ModifyListView":
			b.Expect(count).To(BeNumerically("<=", 4))
		case "POST /rest/com/vmware/cis/tagging/tag-association?list-attached-tags-on-objects":
			b.Expect(count).To(BeZero(), "the tags of a new VM are not read")
		default:
			rest += count
		}
	}
	b.Expect(rest).To(BeNumerically("<=", 70), "the requests that open sessions and resolve names")
}
