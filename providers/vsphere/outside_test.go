package vsphere

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// seenWithin is the longest time until a change by another client must be
// known.
const seenWithin = 2 * time.Second

// idOf returns the reference of a machine's VM.
func (b *bed) idOf(name string) string {
	b.t.Helper()
	found := b.vmNamed(name)
	b.Expect(found).To(HaveLen(1))
	return found[0].Ref
}

// provisioned returns a machine whose VM was up before.
func (b *bed) provisioned(m *vspherev1.NovaVSphereMachine) *vspherev1.NovaVSphereMachine {
	vm, err := b.observe(m)
	b.Expect(err).NotTo(HaveOccurred())
	m = m.DeepCopy()
	m.Spec.ProviderID = vm.ProviderID
	return m
}

// destroyed deletes a machine's VM as its controller does: step by step, with
// retries after failures.
func (b *bed) destroyed(m *vspherev1.NovaVSphereMachine) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		vm, err := b.observe(m)
		g.Expect(err).NotTo(HaveOccurred())
		if vm.State == hypervisor.Running || vm.State == hypervisor.Stopped {
			g.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
		}
		g.Expect(vm.State).To(Equal(hypervisor.Absent))
	}).Should(Succeed())
}

func TestHostFollowsMigration(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	changes := b.connector.Changes()
	before, err := b.observe(m)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(before.Host).NotTo(BeEmpty())
	to := "DC0_C0_H0"
	if before.Host == to {
		to = "DC0_C0_H1"
	}
	b.drain(changes)
	b.vc.ResetRequests()
	b.Expect(b.vc.MigrateVM(b.idOf("m"), to)).To(Succeed())
	b.notified(changes, "m", seenWithin)
	vm, err := b.observe(m)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(vm.Host).To(Equal(to))
	b.Expect(vm.State).To(Equal(hypervisor.Running))
	b.Expect(b.total()).To(BeZero(), "an update of the stream causes no request")
}

func TestRegisteredAgainOutside(t *testing.T) {
	b := newBed(t)
	m := b.provisioned(b.create("m"))
	was := b.idOf("m")
	now, err := b.vc.ReregisterVM(was)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(now).NotTo(Equal(was))
	vm := b.waitForState(m, hypervisor.Running)
	b.Expect(vm.ProviderID).To(Equal(m.Spec.ProviderID))
	b.destroyed(markDeleting(m))
	b.Expect(b.vmNamed("m")).To(BeEmpty())
}

func TestUnreachableIsNotLost(t *testing.T) {
	b := newBed(t)
	m := b.provisioned(b.create("m"))
	vm, err := b.observe(m)
	b.Expect(err).NotTo(HaveOccurred())
	changes := b.connector.Changes()
	b.drain(changes)
	b.Expect(b.vc.SetHostConnected(vm.Host, false)).To(Succeed())
	b.notified(changes, "m", seenWithin)
	for _, m := range []*vspherev1.NovaVSphereMachine{m, markDeleting(m)} {
		_, err = b.observe(m)
		b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(vspherev1.VMUnreachableReason))
		b.Expect(err).To(MatchError(And(ContainSubstring(vm.Host), ContainSubstring("disconnected"))))
		b.vc.ResetRequests()
		b.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
		b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
		b.Expect(b.total()).To(BeZero(), "no request is sent for an unreachable VM")
	}
	b.Expect(b.vc.SetHostConnected(vm.Host, true)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
	for _, state := range []string{"inaccessible", "orphaned", "invalid"} {
		b.Expect(b.vc.SetConnectionState(b.idOf("m"), state)).To(Succeed())
		b.Expect(b.waitForError(m, vspherev1.VMUnreachableReason)).To(MatchError(ContainSubstring(state)))
		b.Expect(b.vc.SetConnectionState(b.idOf("m"), "connected")).To(Succeed())
		b.waitForState(m, hypervisor.Running)
	}
}

func TestCopyWithTheSameUUIDIsNeverDestroyed(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	_, err := b.vc.CopyVM(b.idOf("m"), "copy")
	b.Expect(err).NotTo(HaveOccurred())
	err = b.waitForError(markDeleting(m), infrav1.VMAmbiguousReason)
	b.Expect(err).To(MatchError(ContainSubstring("remove the copies")))
	b.Eventually(b.vc.Requests).Should(HaveKeyWithValue("ModifyListView", 2), "m, and then its copy, are looked at")
	b.vc.ResetRequests()
	b.Expect(b.connect(m).Delete(b.ctx(), markDeleting(m))).To(Succeed())
	b.Expect(b.total()).To(BeZero())
	b.Expect(b.vmNamed("m")).To(HaveLen(1))
	b.Expect(b.vmNamed("copy")).To(HaveLen(1))

	b.wait(b.vm("copy").Destroy(b.ctx()))
	b.waitForState(m, hypervisor.Running)
}

// hide waits until a machine reports that the account does not see its VM.
func (b *bed) hide(m *vspherev1.NovaVSphereMachine) {
	b.t.Helper()
	b.Expect(b.waitForError(m, vspherev1.VMNotVisibleReason)).To(MatchError(ContainSubstring("account")))
}

// If the account loses its permission for a VM, the VM must not be reported as
// deleted: its machine would be replaced, or released while its VM still runs.
func TestHiddenVM(t *testing.T) {
	for _, what := range []string{"m", vcenter.DefaultFolder} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t)
			m := b.provisioned(b.create("m"))
			id := what
			if what == "m" {
				id = b.idOf("m")
			}
			changes := b.connector.Changes()
			b.drain(changes)
			b.Expect(b.vc.SetHidden(id, true)).To(Succeed())
			b.notified(changes, "m", seenWithin)
			b.hide(m)
			b.hide(markDeleting(m))
			b.connect(m).(*driver).session.Resync()
			b.hide(markDeleting(m))
			b.Expect(b.vc.SetHidden(id, false)).To(Succeed())
			b.waitForState(m, hypervisor.Running)
		})
	}
}

// A restarted manager has never seen the VM. It must see the folder in which
// the VM was created before it reports the VM as deleted.
func TestHiddenVMBeforeARestart(t *testing.T) {
	b := newBed(t)
	b.checkHiddenBeforeRestart()
}

// checkHiddenBeforeRestart hides the folder from a restarted manager: it must
// not report the VM in that folder as deleted.
func (b *bed) checkHiddenBeforeRestart() {
	b.t.Helper()
	m := b.provisioned(b.create("m"))
	b.connector.Close()
	b.Expect(b.vc.SetHidden(vcenter.DefaultFolder, true)).To(Succeed())
	b.connector = b.newConnector()
	b.hide(m)
	b.hide(markDeleting(m))
	b.Expect(b.vc.SetHidden(vcenter.DefaultFolder, false)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
}

// inDomains returns a test environment whose cluster has two failure domains,
// in separate folders. Only the failure domains set the placement: there are
// two datacenters.
func inDomains(t *testing.T) *bed {
	t.Helper()
	b := newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{Folders: []string{vcenter.DefaultFolder, "a", "b"}}})
	_, err := object.NewRootFolder(b.admin().Client).CreateDatacenter(b.ctx(), "DC1")
	b.Expect(err).NotTo(HaveOccurred())
	b.cluster.Spec.Placement = vspherev1.NovaVSpherePlacement{}
	for _, name := range []string{"a", "b"} {
		b.cluster.Spec.FailureDomains = append(b.cluster.Spec.FailureDomains, vspherev1.NovaVSphereFailureDomain{
			FailureDomain: infrav1.FailureDomain{Name: name},
			Placement:     vspherev1.NovaVSpherePlacement{Datacenter: "DC0", ResourcePool: "DC0_C0_RP1", Folder: name, Datastore: "LocalDS_0"},
		})
	}
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	return b
}

// createIn creates a machine's VM in a failure domain, or in none.
func (b *bed) createIn(zone string) *vspherev1.NovaVSphereMachine {
	b.t.Helper()
	m := b.machine("m")
	l := createOptions
	l.Zone = zone
	b.Expect(b.connect(m).Create(b.ctx(), m, l)).To(Succeed())
	vm := b.waitForState(m, hypervisor.Running)
	b.Expect(vm.Zone).To(Equal(zone))
	m.Spec.ProviderID = vm.ProviderID
	return m
}

// withStatus returns a machine that has kept its status.
func withStatus(m *vspherev1.NovaVSphereMachine, zone string) *vspherev1.NovaVSphereMachine {
	m = m.DeepCopy()
	m.Status.FailureDomain = zone
	m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.7"}}
	return m
}

// A restarted manager reports a VM as deleted only if it would see the VM in
// each place where it may have been created.
func TestDeletedVMInFailureDomains(t *testing.T) {
	within := vspherev1.NovaVSpherePlacement{Datacenter: "DC0", ResourcePool: "DC0_C0_RP1", Folder: vcenter.DefaultFolder, Datastore: "LocalDS_0"}
	dropped := func(m *vspherev1.NovaVSphereMachine) *vspherev1.NovaVSphereMachine { return m }
	kept := func(zone string) func(*vspherev1.NovaVSphereMachine) *vspherev1.NovaVSphereMachine {
		return func(m *vspherev1.NovaVSphereMachine) *vspherev1.NovaVSphereMachine { return withStatus(m, zone) }
	}
	for _, tt := range []struct {
		name string
		// zone is the failure domain in which the VM is created, and status sets
		// its record in the machine.
		zone   string
		status func(*vspherev1.NovaVSphereMachine) *vspherev1.NovaVSphereMachine
		// cluster is the placement of the cluster, and removed is the failure
		// domain that is removed from it.
		cluster vspherev1.NovaVSpherePlacement
		removed string
		// hidden is the folder for which the account loses its permission. A VM
		// that is not created there is destroyed.
		hidden string
		seen   bool
	}{
		{name: "known", zone: "a", status: kept("a"), seen: true},
		{name: "known, and its folder is hidden", zone: "a", status: kept("a"), hidden: "a"},
		{name: "known, and another folder is hidden", zone: "a", status: kept("a"), hidden: "b", seen: true},
		{name: "dropped", zone: "a", status: dropped, seen: true},
		{name: "dropped, and its folder is hidden", zone: "a", status: dropped, hidden: "a"},
		{name: "dropped, and only its folder is hidden", zone: "a", status: dropped, cluster: within, hidden: "a"},
		{name: "dropped, and the cluster's folder is hidden", zone: "", status: dropped, cluster: within, hidden: vcenter.DefaultFolder},
		{name: "removed", zone: "a", status: kept("a"), removed: "a", seen: true},
		{name: "removed, and another folder is hidden", zone: "a", status: kept("a"), removed: "a", hidden: "b"},
		{name: "none", zone: "", status: kept(""), cluster: within, hidden: "b", seen: true},
		{name: "none, and its folder is hidden", zone: "", status: kept(""), cluster: within, hidden: vcenter.DefaultFolder},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := inDomains(t)
			b.cluster.Spec.Placement = tt.cluster
			b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
			m := tt.status(b.createIn(tt.zone))
			vm := b.vm("m")
			b.connector.Close()
			if tt.hidden != "" {
				b.Expect(b.vc.SetHidden(tt.hidden, true)).To(Succeed())
			}
			if tt.hidden != cmp.Or(tt.zone, vcenter.DefaultFolder) {
				b.wait(vm.PowerOff(b.ctx()))
				b.wait(vm.Destroy(b.ctx()))
			}
			b.cluster.Spec.FailureDomains = slices.DeleteFunc(b.cluster.Spec.FailureDomains,
				func(d vspherev1.NovaVSphereFailureDomain) bool { return d.Name == tt.removed })
			b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())

			b.connector = b.newConnector()
			if !tt.seen {
				b.hide(m)
				b.hide(markDeleting(m))
				return
			}
			b.waitForState(m, hypervisor.Absent)
			b.vc.ResetRequests()
			b.waitForState(m, hypervisor.Absent)
			b.Expect(b.total()).To(BeZero(), "one request is sent")
			b.waitForState(markDeleting(m), hypervisor.Absent)
		})
	}
}

// A folder that is created on demand does not count as visible because it
// exists.
func TestHiddenFolderThatIsCreated(t *testing.T) {
	b := newBed(t)
	b.cluster.Spec.Placement.CreateFolder = ptr.To(true)
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	b.checkHiddenBeforeRestart()
}

// A deleted VM is known to be deleted, also by a restarted manager, and
// vCenter gets one request about it.
func TestDeletedVMStaysDeleted(t *testing.T) {
	b := newBed(t)
	m := b.provisioned(b.create("m"))
	vm := b.vm("m")
	b.wait(vm.PowerOff(b.ctx()))
	b.vc.ResetRequests()
	b.wait(vm.Destroy(b.ctx()))
	b.waitForState(m, hypervisor.Absent)
	b.vc.ResetRequests()
	b.waitForState(m, hypervisor.Absent)
	b.Expect(b.total()).To(BeZero())

	b.connector.Close()
	b.connector = b.newConnector()
	b.waitForState(m, hypervisor.Absent)
	b.vc.ResetRequests()
	b.waitForState(m, hypervisor.Absent)
	b.Expect(b.total()).To(BeZero())
	b.waitForState(markDeleting(m), hypervisor.Absent)
}

// The message of a machine has the pending question of its VM.
func TestQuestion(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	b.wait(b.vm("m").PowerOff(b.ctx()))
	b.waitForState(m, hypervisor.Stopped)
	b.vc.SetTaskDelay("PowerOnVM_Task", time.Second)
	b.Expect(b.connect(m).Start(b.ctx(), m)).To(Succeed())
	b.Expect(b.vc.SetQuestion(b.idOf("m"), "Did you move it, or copy it?")).To(Succeed())
	b.Eventually(func() string { return b.waitForState(m, hypervisor.Busy).Message }).Should(HaveSuffix("Did you move it, or copy it?"))
	b.Expect(b.vc.SetQuestion(b.idOf("m"), "")).To(Succeed())
	b.waitForState(m, hypervisor.Running)
}

// vCenter gives a clone another instance UUID if a VM that the account cannot
// see has the requested one. The clone is deleted before the failure names it,
// also when its machine is being deleted.
func TestTakenInstanceUUID(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprintf("deleted=%t", deleted), func(t *testing.T) {
			b := newBed(t)
			m := b.machine("m")
			b.addPlainVM("twin", types.VirtualMachineConfigSpec{InstanceUuid: b.id(m).String()})
			b.Expect(b.vc.SetHidden(b.idOf("twin"), true)).To(Succeed())
			changes := b.connector.Changes()
			b.vc.ResetRequests()
			b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
			b.Eventually(func() []vcenter.VM { return b.vmNamed("m") }).Should(HaveLen(1))
			clone := b.idOf("m")
			if deleted {
				b.destroyed(markDeleting(m))
			} else {
				b.waitForState(m, hypervisor.Absent)
				b.Expect(b.rejected(m)).To(MatchError(And(ContainSubstring("("+clone+")"), ContainSubstring("was deleted"))))
				b.drain(changes)
				b.waitForState(m, hypervisor.Absent)
				b.Consistently(changes, "300ms").ShouldNot(Receive(), "the failure stays as it is")
			}
			b.Expect(b.vmNamed("m")).To(BeEmpty())
			b.Expect(b.vmNamed("twin")).To(HaveLen(1))
			if !deleted {
				b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(MatchError(ContainSubstring("was deleted")), "no clone a minute")
			}
			b.Expect(b.vc.Requests()["CloneVM_Task"]).To(Equal(1))
			b.Expect(b.vc.Requests()["PowerOffVM_Task"]).To(Equal(1))
		})
	}
}

// The next clone is requested some time after vCenter gave another instance
// UUID, and succeeds if the other VM is deleted.
func TestTakenInstanceUUIDIsFreed(t *testing.T) {
	b := newBed(t)
	b.options.timeouts.RecloneDelay = time.Second
	b.connector = b.newConnector()
	m := b.machine("m")
	b.addPlainVM("twin", types.VirtualMachineConfigSpec{InstanceUuid: b.id(m).String()})
	b.Expect(b.vc.SetHidden(b.idOf("twin"), true)).To(Succeed())
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	vm := b.waitForState(m, hypervisor.Absent)
	b.Expect(vm.Message).To(HavePrefix("Deleting the VM "+b.idOf("m")), "the next step is no creation")
	b.Expect(b.rejected(m)).To(MatchError(ContainSubstring("was deleted")))
	b.Expect(b.vc.SetHidden(b.idOf("twin"), false)).To(Succeed())
	b.wait(b.vm("twin").Destroy(b.ctx()))
	b.waitForState(m, hypervisor.Absent)
	b.Eventually(func() error { return b.connect(m).Create(b.ctx(), m, createOptions) }).Should(Succeed())
	b.waitForState(m, hypervisor.Running)
}

// rejected creates a machine's VM as the controller does, until that fails.
func (b *bed) rejected(m *vspherev1.NovaVSphereMachine) (failure error) {
	b.Eventually(func(g Gomega) {
		vm, err := b.observe(m)
		if failure = cmp.Or(err, vm.LastFailure); failure == nil && vm.State == hypervisor.Absent {
			g.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
		}
		g.Expect(failure).To(HaveOccurred())
	}).Should(Succeed())
	return failure
}

// The creation of a VM fails with the reason for which its clone cannot be
// deleted.
func TestTakenInstanceUUIDWithoutPermission(t *testing.T) {
	b := newBed(t)
	m := b.machine("m")
	b.addPlainVM("twin", types.VirtualMachineConfigSpec{InstanceUuid: b.id(m).String()})
	b.Expect(b.vc.SetHidden(b.idOf("twin"), true)).To(Succeed())
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Absent)
	b.vc.InjectFault("Destroy_Task", 0, &types.NoPermission{}, "")
	b.Expect(b.rejected(m)).To(MatchError(And(ContainSubstring(b.idOf("m")), ContainSubstring("NoPermission"))))
	b.Expect(b.vmNamed("m")).To(HaveLen(1))
}
