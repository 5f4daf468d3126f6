package zvirt

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// foreignVM creates a VM that no machine owns in a cluster of the engine.
func (b *bed) foreignVM(name, cluster, comment string) string {
	b.t.Helper()
	return b.idOf(b.admin("POST", "/vms", fmt.Sprintf(
		`<vm><name>%s</name><comment>%s</comment><cluster><name>%s</name></cluster><template><name>Blank</name></template></vm>`, name, comment, cluster)))
}

// A user who clones a VM in the engine copies its comment, too.
func TestCopyOfVM(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1")
	id, err := kit.MachineUUID(clusterID, hypervisor.KeyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	copied := b.foreignVM("copy-of-worker-1", "Default", plan.Mark{ID: id}.String())
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	b.Expect(b.vmsNamed("worker-1")).To(BeEmpty())
	b.Expect(b.vmsNamed("copy-of-worker-1")).To(HaveLen(1))
	b.Expect(b.vmsNamed("copy-of-worker-1")[0].ID).To(Equal(copied))
	b.Expect(b.observedState(m)).To(Equal(hypervisor.Absent))
}

func (b *bed) observedState(m *zvirtv1.NovaZVirtMachine) hypervisor.State {
	vm, err := b.connect(m).Observe(b.ctx(), m)
	b.Expect(err).NotTo(HaveOccurred())
	return vm.State
}

// expectAmbiguous reconciles a machine until its VM cannot be identified. No
// reconcile may take a step.
func (b *bed) expectAmbiguous(m *zvirtv1.NovaZVirtMachine, reason string) error {
	b.t.Helper()
	var err error
	b.Eventually(func() string {
		_, err = b.connect(m).Observe(b.ctx(), m)
		return hypervisor.ReasonFor(err, "")
	}).Should(Equal(reason))
	return err
}

// The controller stores the ID of a VM when the VM reports its first address:
// until then, only the name distinguishes a VM from a copy of it.
func TestVMRenamedBeforeProviderID(t *testing.T) {
	for _, end := range []string{"renamed back", "unmarked"} {
		t.Run(end, func(t *testing.T) {
			b := newBed(t)
			m := b.machine("worker-1")
			b.reconcileUntil(b.connector, m, false, "start")
			b.Expect(m.Spec.ProviderID).To(BeEmpty())
			vm := b.vmsNamed("worker-1")[0].ID
			rename := func(to string) { b.admin("PUT", "/vms/"+vm, "<vm><name>"+to+"</name></vm>") }
			rename("renamed")
			b.Expect(b.expectAmbiguous(m, infrav1.VMAmbiguousReason)).To(MatchError(ContainSubstring("renamed (" + vm)))
			b.Expect(b.expectFailure(markDeleted(m), infrav1.VMAmbiguousReason)).To(HaveOccurred())
			b.Expect(b.vmsNamed("worker-1")).To(BeEmpty())
			if end == "unmarked" {
				b.admin("PUT", "/vms/"+vm, "<vm><comment>mine</comment></vm>")
				b.reconcileUntil(b.connector, markDeleted(m), false, "release")
				b.Expect(b.vmsNamed("renamed")).To(HaveLen(1))
				return
			}
			rename("worker-1")
			b.reconcileUntil(b.connector, m, true, "rest")
			b.reconcileUntil(b.connector, markDeleted(m), false, "release")
			b.Expect(b.engine.VMs()).To(BeEmpty())
		})
	}
}

// A user can copy a VM to another data center with its name and its comment.
func TestCopyInAnotherDataCenterBeforeProviderID(t *testing.T) {
	b := newBed(t, func(o *ovirtsim.Options) { o.Inventory.DataCenters = []string{"Elsewhere"} })
	m := b.machine("worker-1")
	b.reconcileUntil(b.connector, m, false, "start")
	id, err := kit.MachineUUID(clusterID, hypervisor.KeyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	copied := b.foreignVM("worker-1", "Elsewhere", plan.Mark{ID: id}.String())
	b.Expect(b.expectAmbiguous(m, infrav1.VMAmbiguousReason)).To(MatchError(ContainSubstring(copied)))
	b.Expect(b.expectFailure(markDeleted(m), infrav1.VMAmbiguousReason)).To(HaveOccurred())
	b.Expect(b.vmsNamed("worker-1")).To(HaveLen(2))
	b.admin("DELETE", "/vms/"+copied, "")
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	b.Expect(b.engine.VMs()).To(BeEmpty())
}

func TestVMWithoutMark(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1")
	vm := b.vmsNamed("worker-1")[0].ID
	b.admin("PUT", "/vms/"+vm, "<vm><comment>a nice VM</comment></vm>")
	err := b.expectFailure(m, infrav1.HypervisorErrorReason)
	b.Expect(err).To(MatchError(ContainSubstring("nova-machine/")))
	b.Expect(b.expectFailure(markDeleted(m), infrav1.HypervisorErrorReason)).To(MatchError(ContainSubstring("delete the VM")))
	b.Expect(b.vmsNamed("worker-1")).To(HaveLen(1))

	id, err := kit.MachineUUID(clusterID, hypervisor.KeyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	b.admin("PUT", "/vms/"+vm, "<vm><comment>"+plan.Mark{ID: id}.String()+"</comment></vm>")
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	b.Expect(b.vmsNamed("worker-1")).To(BeEmpty())
}

// TestForeignDisks deletes a machine with a foreign disk in each state in which
// a VM can be deleted.
func TestForeignDisks(t *testing.T) {
	for _, at := range []struct {
		name  string
		reach func(b *bed, m *zvirtv1.NovaZVirtMachine)
	}{
		{"before its first boot", func(b *bed, m *zvirtv1.NovaZVirtMachine) { b.reconcileUntil(b.connector, m, false, "sync") }},
		{"during its start", func(b *bed, m *zvirtv1.NovaZVirtMachine) { b.reconcileUntil(b.connector, m, false, "start") }},
		{"running", func(b *bed, m *zvirtv1.NovaZVirtMachine) { b.reconcileUntil(b.connector, m, true, "rest") }},
		{"stopped", func(b *bed, m *zvirtv1.NovaZVirtMachine) {
			b.reconcileUntil(b.connector, m, true, "rest")
			b.Expect(b.engine.GuestStopped(m.Name)).To(Succeed())
		}},
		{"suspended", func(b *bed, m *zvirtv1.NovaZVirtMachine) {
			b.reconcileUntil(b.connector, m, true, "rest")
			b.Expect(b.engine.SetVMStatus(m.Name, "suspended")).To(Succeed())
		}},
		{"paused", func(b *bed, m *zvirtv1.NovaZVirtMachine) {
			b.reconcileUntil(b.connector, m, true, "rest")
			b.Expect(b.engine.SetVMStatus(m.Name, "paused")).To(Succeed())
		}},
	} {
		t.Run(at.name, func(t *testing.T) {
			b := newBed(t)
			disk := b.foreignDisk("pvc-" + strings.ReplaceAll(at.name, " ", "-"))
			m := b.machine("worker-1")
			at.reach(b, m)
			b.Eventually(func() int {
				status, _ := b.engine.Do("POST", "/vms/"+b.vmsNamed(m.Name)[0].ID+"/diskattachments", fmt.Sprintf(
					`<disk_attachment><active>true</active><bootable>false</bootable><interface>virtio_scsi</interface><disk id=%q/></disk_attachment>`, disk))
				return status
			}).Should(BeNumerically("<", 300))
			b.reconcileUntil(b.connector, markDeleted(m), false, "release")
			b.Expect(b.vmsNamed(m.Name)).To(BeEmpty())
			b.Eventually(func() []string { return b.diskNames("worker-1-") }).Should(BeEmpty())
			b.Expect(b.admin("GET", "/disks/"+disk, "")).To(ContainSubstring("<status>ok</status>"))
		})
	}
}

// A foreign disk that is attached after the last read is kept if the VM is a
// full clone.
func TestForeignDiskWhileACloneIsRemoved(t *testing.T) {
	b := newBed(t)
	disk := b.foreignDisk("pvc-late")
	m := b.create("worker-1", func(m *zvirtv1.NovaZVirtMachine) { m.Spec.CloneMode = infrav1.CloneFull })
	vm := b.vmsNamed("worker-1")[0].ID
	var attached atomic.Bool
	attach := func(method, path string) {
		if method == "DELETE" && path == "/vms/{}" && attached.CompareAndSwap(false, true) {
			b.attach(vm, disk)
		}
	}
	b.onRequest.Store(&attach)
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	b.Expect(attached.Load()).To(BeTrue())
	b.Expect(b.vmsNamed("worker-1")).To(BeEmpty())
	b.Expect(b.diskNames("pvc-")).To(HaveLen(1))
	b.Eventually(func() []string { return b.diskNames("worker-1-") }).Should(BeEmpty())
}

// The engine cannot detach a disk that is in a snapshot, such as the snapshot
// of a backup.
func TestForeignDiskInSnapshot(t *testing.T) {
	b := newBed(t)
	disk := b.foreignDisk("pvc-1")
	m := b.create("worker-1")
	vm := b.vmsNamed("worker-1")[0].ID
	b.attach(vm, disk)
	snapshot := b.idOf(b.admin("POST", "/vms/"+vm+"/snapshots", "<snapshot><description>nightly backup</description></snapshot>"))
	b.Eventually(func() string { return b.admin("GET", "/vms/"+vm+"/snapshots/"+snapshot, "") }).Should(ContainSubstring("<snapshot_status>ok<"))
	b.Expect(b.expectFailure(markDeleted(m), infrav1.DisksInSnapshotReason)).To(MatchError(And(ContainSubstring(disk), ContainSubstring(`"nightly backup"`))))
	b.Expect(b.diskNames("pvc-")).To(HaveLen(1))
	b.admin("DELETE", "/vms/"+vm+"/snapshots/"+snapshot, "")
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	b.Expect(b.admin("GET", "/disks/"+disk, "")).To(ContainSubstring("<status>ok</status>"))
}

// Engines of zVirt translate messages. The driver requests them in English.
func TestErrorsOfLocalizedEngine(t *testing.T) {
	b := newBed(t)
	m := b.machine("worker-1")
	b.admin("POST", "/vms", "<vm><name>worker-1</name><cluster><name>Default</name></cluster><template><name>"+templateName+"</name></template></vm>")
	b.Expect(b.expectFailure(m, infrav1.NameConflictReason)).To(HaveOccurred())
}

func TestDeleteProtected(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1")
	vm := b.vmsNamed("worker-1")[0].ID
	b.admin("PUT", "/vms/"+vm, "<vm><delete_protected>true</delete_protected></vm>")
	b.Expect(b.expectFailure(markDeleted(m), infrav1.DeleteProtectedReason)).To(MatchError(ContainSubstring("protected")))
	b.admin("PUT", "/vms/"+vm, "<vm><delete_protected>false</delete_protected></vm>")
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
}

func TestHighlyAvailableVMIsDeleted(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1", func(m *zvirtv1.NovaZVirtMachine) {
		m.Spec.HighAvailability = zvirtv1.NovaZVirtHighAvailability{Priority: 1}
	})
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	b.Expect(b.vmsNamed("worker-1")).To(BeEmpty())
}

func TestTransientConflicts(t *testing.T) {
	b := newBed(t)
	b.engine.Inject(ovirtsim.Fault{
		Method: "POST", Path: "vms", Status: 409, Reason: "Operation Failed",
		Detail: "[Cannot add VM. Related operation is currently in progress. Please try again later.]",
	})
	m := b.machine("worker-1")
	var err error
	b.Eventually(func() bool {
		_, _, err = b.reconcile(b.connector, m, false)
		return hypervisor.IsTransient(err)
	}).Should(BeTrue())
	b.Expect(err).To(MatchError(ContainSubstring("Related operation")))
	b.reconcileUntil(b.connector, m, true, "rest")
}

func TestUnknownState(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1")
	b.Expect(b.engine.SetVMStatus("worker-1", "unknown")).To(Succeed())
	b.Expect(b.expectFailure(m, infrav1.HypervisorErrorReason)).To(MatchError(ContainSubstring("does not know the state")))
	b.Expect(b.engine.SetVMStatus("worker-1", "up")).To(Succeed())
	b.reconcileUntil(b.connector, m, true, "rest")
}

func TestFullDomain(t *testing.T) {
	b := newBed(t)
	b.Expect(b.engine.SetDomain("data1", "", 499)).To(Succeed())
	b.Expect(b.expectFailure(b.machine("worker-1"), infrav1.InsufficientResourcesReason)).To(MatchError(ContainSubstring("Low disk space")))
}

func TestNoHostWithCapacity(t *testing.T) {
	b := newBed(t)
	m := b.machine("worker-1", func(m *zvirtv1.NovaZVirtMachine) { m.Spec.Hardware.MemoryMiB = 128 << 10 })
	err := b.expectFailure(m, infrav1.InsufficientResourcesReason)
	b.Expect(err).To(MatchError(ContainSubstring("no host that satisfies")))
}

// TestStorm creates and deletes machines while many requests fail.
func TestStorm(t *testing.T) {
	b := newBed(t)
	b.options.MaxCreations = 3
	c := b.newConnector()
	disk := b.foreignDisk("pvc-storm")
	for _, f := range []ovirtsim.Fault{
		{Every: 7, Drop: true}, {Every: 11, Drop: true, After: true}, {Every: 13, Status: 503},
		{Every: 17, Status: 409, Reason: "Operation Failed", Detail: "[Cannot edit VM: VM is locked. Please try again in a few minutes.]"},
		{Path: "sso/oauth/token", Every: 3, Status: 503},
	} {
		f.Times = -1
		b.engine.Inject(f)
	}
	const count = 6
	machines := make([]*zvirtv1.NovaZVirtMachine, count)
	for i := range machines {
		machines[i] = b.machine(fmt.Sprintf("storm-%d", i))
	}
	failures := 0
	drive := func(goal string) {
		round := 0
		b.Eventually(func() int {
			done := 0
			for i := range machines {
				switch _, did, err := b.reconcile(c, machines[i], true); {
				case err != nil:
					failures++
				case did == goal:
					done++
				}
			}
			switch round++; {
			case round%30 == 10:
				b.engine.ExpireTokens()
			case round%60 == 40:
				b.engine.Restart(20 * time.Millisecond)
			}
			return done
		}, 3*timeout).Should(Equal(count))
	}
	drive("rest")
	for _, m := range machines {
		b.Expect(b.vmsNamed(m.Name)).To(HaveLen(1))
		b.Expect(b.vmsNamed(m.Name)[0].NICs).To(HaveLen(1))
	}
	b.Expect(b.diskNames("storm-")).To(HaveLen(count))
	b.attach(b.vmsNamed("storm-0")[0].ID, disk)
	for i := range machines {
		machines[i] = markDeleted(machines[i])
	}
	drive("release")
	b.Expect(b.engine.VMs()).To(BeEmpty())
	b.Eventually(func() []string { return b.diskNames("storm-") }).Should(BeEmpty())
	b.Expect(b.diskNames("pvc-")).To(HaveLen(1))
	b.Expect(failures).To(BeNumerically(">", 20), "too few requests failed")
	b.engine.ClearFaults()
	b.Eventually(func() string { return b.groupsOf("Default") }).ShouldNot(ContainSubstring("nova-cluster/"))
}
