package vsphere

import (
	"path"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

const volume = "[LocalDS_1] fcd/volume.vmdk"

// expectFile expects that a file still exists.
func (b *bed) expectFile(file string) {
	b.t.Helper()
	kept, err := b.vc.HasFile(file)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(kept).To(BeTrue(), "%s is gone", file)
}

// attach attaches disks that are not the machine's: a volume of a storage
// driver, and a disk that a user created in the VM's own directory.
func (b *bed) attach(m *vspherev1.NovaVSphereMachine) []string {
	b.t.Helper()
	id := b.idOf(m.Name)
	home := b.home(m.Name)
	b.Expect(b.vc.SetGuestInfo(id, spec.DisksKey, "scsi0:0")).To(Succeed())
	b.Expect(b.vc.AttachDisk(id, vcenter.Disk{File: volume, FirstClass: "b1c2"})).To(Succeed())
	b.Expect(b.vc.AttachDisk(id, vcenter.Disk{File: home + "/by-hand.vmdk"})).To(Succeed())
	return []string{volume, home + "/by-hand.vmdk"}
}

// home returns the directory of a VM.
func (b *bed) home(name string) string {
	b.t.Helper()
	devices, err := b.vm(name).Device(b.ctx())
	b.Expect(err).NotTo(HaveOccurred())
	disks := devices.SelectByType((*types.VirtualDisk)(nil))
	b.Expect(disks).NotTo(BeEmpty())
	return path.Dir(spec.FileOf(disks[0].(*types.VirtualDisk)))
}

func TestForeignDisksAreKept(t *testing.T) {
	states := map[string]func(*bed, *vspherev1.NovaVSphereMachine){
		"running":   func(*bed, *vspherev1.NovaVSphereMachine) {},
		"stopped":   func(b *bed, m *vspherev1.NovaVSphereMachine) { b.wait(b.vm(m.Name).PowerOff(b.ctx())) },
		"suspended": func(b *bed, m *vspherev1.NovaVSphereMachine) { b.wait(b.vm(m.Name).Suspend(b.ctx())) },
		"snapshot": func(b *bed, m *vspherev1.NovaVSphereMachine) {
			b.wait(b.vm(m.Name).CreateSnapshot(b.ctx(), "s", "", false, false))
		},
		"unconsolidated": func(b *bed, m *vspherev1.NovaVSphereMachine) {
			b.Expect(b.vc.SetConsolidationNeeded(b.idOf(m.Name), true)).To(Succeed())
		},
	}
	for name, into := range states {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			m := b.create("m")
			disks := b.attach(m)
			own := b.home("m") + "/m.vmdk"
			into(b, m)
			b.destroyed(markDeleting(m))
			b.Expect(b.vmNamed("m")).To(BeEmpty())
			for _, disk := range disks {
				b.expectFile(disk)
			}
			left, err := b.vc.HasFile(own)
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(left).To(BeFalse(), "its own disk is deleted")
		})
	}
}

// The process may end between any two steps. The next process reads the
// attached disks and does not rely on the steps before.
func TestForeignDisksAreKeptOverRestarts(t *testing.T) {
	b := newBed(t)
	m := markDeleting(b.create("m"))
	disks := b.attach(m)
	for range 20 {
		vm, err := b.observe(m)
		b.Expect(err).NotTo(HaveOccurred())
		if vm.State == hypervisor.Absent {
			break
		}
		b.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
		b.connector.Close()
		b.connector = b.newConnector()
		b.Eventually(func() hypervisor.State {
			vm, err := b.observe(m)
			b.Expect(err).NotTo(HaveOccurred())
			return vm.State
		}).ShouldNot(Equal(hypervisor.Busy))
	}
	b.waitForState(m, hypervisor.Absent)
	for _, disk := range disks {
		b.expectFile(disk)
	}
}

// A volume that is attached again between the detach and the destroy is
// detached again.
func TestForeignDiskAttachedAgain(t *testing.T) {
	b := newBed(t)
	m := markDeleting(b.create("m"))
	b.attach(m)
	b.wait(b.vm("m").PowerOff(b.ctx()))
	b.waitForState(m, hypervisor.Stopped)
	b.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
	b.waitForState(m, hypervisor.Stopped)
	b.Expect(b.vc.AttachDisk(b.idOf("m"), vcenter.Disk{File: "[LocalDS_1] fcd/late.vmdk", FirstClass: "d4"})).To(Succeed())
	b.destroyed(m)
	b.expectFile(volume)
	b.expectFile("[LocalDS_1] fcd/late.vmdk")
}

func TestDiskOfASnapshotOnly(t *testing.T) {
	b := newBed(t)
	m := markDeleting(b.create("m"))
	b.attach(m)
	b.wait(b.vm("m").CreateSnapshot(b.ctx(), "s", "", false, false))
	b.wait(b.vm("m").PowerOff(b.ctx()))
	devices, err := b.vm("m").Device(b.ctx())
	b.Expect(err).NotTo(HaveOccurred())
	for _, d := range devices {
		if disk, ok := d.(*types.VirtualDisk); ok && disk.VDiskId == nil && *disk.UnitNumber > 0 {
			b.Expect(b.vm("m").RemoveDevice(b.ctx(), true, disk)).To(Succeed())
		}
	}
	b.waitForState(m, hypervisor.Stopped)
	err = b.connect(m).Delete(b.ctx(), m)
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.DisksInSnapshotReason))
	b.Expect(err).To(MatchError(ContainSubstring("by-hand.vmdk")))
	b.Expect(b.vmNamed("m")).To(HaveLen(1))
	b.waitForState(m, hypervisor.Stopped)

	task, err := b.vm("m").RemoveAllSnapshot(b.ctx(), nil)
	b.wait(task, err)
	b.destroyed(m)
	b.expectFile(volume)
}

// A lock on a VM or its disks may be temporary or permanent. In both cases the
// error has vCenter's message, and the request is repeated only when the
// controller decides so.
func TestLockedDisks(t *testing.T) {
	faults := map[string]types.BaseMethodFault{
		"Another task is already in progress": &types.TaskInProgress{},
		"locked":                              &types.FileLocked{FileFault: types.FileFault{File: "m.vmdk"}},
		"changed the object meanwhile":        &types.ConcurrentAccess{},
	}
	for words, fault := range faults {
		t.Run(words, func(t *testing.T) {
			b := newBed(t)
			m := markDeleting(b.create("m"))
			b.attach(m)
			b.wait(b.vm("m").PowerOff(b.ctx()))
			b.waitForState(m, hypervisor.Stopped)
			for _, method := range []string{"ReconfigVM_Task", "Destroy_Task"} {
				b.vc.InjectFault(method, 1, fault, "")
				b.vc.ResetRequests()
				b.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
				b.Expect(b.failsOnce(m)).To(MatchError(ContainSubstring(words)))
				b.waitForState(m, hypervisor.Stopped)
				b.Expect(b.vc.Requests()[method]).To(Equal(1), "%v", b.vc.Requests())
				b.expectFile(volume)
				if method == "ReconfigVM_Task" {
					b.Expect(b.connect(m).Delete(b.ctx(), m)).To(Succeed())
					b.waitForState(m, hypervisor.Stopped)
				}
			}
			b.destroyed(m)
			b.expectFile(volume)
		})
	}
}

func TestShutdown(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	id := b.idOf("m")
	b.Expect(b.vc.SetToolsRunning(id, false)).To(Succeed())
	b.Eventually(func() string {
		return hypervisor.ReasonFor(b.connect(m).Shutdown(b.ctx(), m), "")
	}).Should(Equal(infrav1.GuestUnreachableReason))
	b.vc.ResetRequests()
	b.Expect(b.connect(m).Shutdown(b.ctx(), m)).NotTo(Succeed())
	b.Expect(b.total()).To(BeZero(), "no request is sent to a guest without VMware Tools")

	b.Expect(b.vc.SetToolsRunning(id, true)).To(Succeed())
	b.Eventually(func() error { return b.connect(m).Shutdown(b.ctx(), m) }).Should(Succeed())
	b.Expect(b.connect(m).Shutdown(b.ctx(), m)).To(Succeed())
	b.waitForState(m, hypervisor.Stopped)
	b.Expect(b.connect(m).Shutdown(b.ctx(), m)).To(Succeed())
	b.Expect(b.vc.Requests()).To(Equal(map[string]int{"ShutdownGuest": 1}))
}

func TestShutdownRefused(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	b.Expect(b.vc.SetToolsRunning(b.idOf("m"), true)).To(Succeed())
	b.Eventually(func() bool {
		id, err := kit.MachineUUID(b.cluster.Annotations[infrav1.ClusterIDAnnotation], hypervisor.KeyOf(m))
		b.Expect(err).NotTo(HaveOccurred())
		return b.connect(m).(*driver).session.inv.Info(id).ToolsRunning
	}).Should(BeTrue())
	b.vc.InjectCallFault("ShutdownGuest", 1, &types.ToolsUnavailable{}, "")
	err := b.connect(m).Shutdown(b.ctx(), m)
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.GuestUnreachableReason))
	b.Expect(err).To(MatchError(ContainSubstring("VMware Tools")))
}
