package vsphere

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	hypervisortest "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// role is a test environment whose account has a role.
type role struct {
	*bed
	privileges []string
}

// asAdministrator runs a function with privileges that the account's role does
// not have.
func (r *role) asAdministrator(do func()) {
	r.vc.SetPrivileges()
	defer r.vc.SetPrivileges(r.privileges...)
	do()
}

// machineWithAllSettings returns a machine that needs all privileges which
// depend on its spec, except for those that depend on its source.
func (r *role) machineWithAllSettings(name string, source vspherev1.NovaVSphereMachineSpec) *vspherev1.NovaVSphereMachine {
	m := r.groupedMachine(name, "md")
	m.Spec.Template = source.Template
	m.Spec.Placement = vspherev1.NovaVSpherePlacement{Folder: "nova/" + name, CreateFolder: ptr.To(true), StoragePolicy: storagePolicy, Datastore: "LocalDS_0"}
	m.Spec.Hardware.CPUReservationMHz = ptr.To[int64](100)
	m.Spec.Hardware.Version = "vmx-22"
	m.Spec.Disks = vspherev1.NovaVSphereDisks{Boot: vspherev1.NovaVSphereBootDisk{SizeGiB: 30}, Data: []vspherev1.NovaVSphereDataDisk{{Name: "data", SizeGiB: 1}}}
	m.Spec.Tags = []vspherev1.NovaVSphereTag{{Category: name, Name: "red"}}
	m.Spec.CustomAttributes = []vspherev1.NovaVSphereCustomAttribute{{Name: name, Value: "17"}}
	m.Spec.CreateMissingTags = ptr.To(true)
	return m
}

// createMachine runs a machine through its life, with a volume of a storage
// driver in a snapshot of it, and returns the first failure.
func (r *role) createMachine(m *vspherev1.NovaVSphereMachine) error {
	if err := r.reconcile(m); err != nil {
		return err
	}
	r.asAdministrator(func() {
		r.Expect(r.vc.AttachDisk(r.idOf(m.Name), vcenter.Disk{File: "[LocalDS_1] fcd/" + m.Name + ".vmdk", FirstClass: m.Name})).To(Succeed())
		r.wait(r.vm(m.Name).CreateSnapshot(r.ctx(), "backup", "", false, false))
	})
	return r.reconcile(markDeleting(m))
}

// reconcile reconciles a machine until it is up, or absent if it is being
// deleted. It returns the first failure.
func (r *role) reconcile(m *vspherev1.NovaVSphereMachine) error {
	r.t.Helper()
	deleting := !m.DeletionTimestamp.IsZero()
	var failed error
	r.Eventually(func() bool {
		d, err := r.connector.Connect(r.ctx(), m)
		if err == nil {
			var vm hypervisor.VM
			vm, err = d.Observe(r.ctx(), m)
			err = cmp.Or(err, vm.LastFailure)
			switch {
			case err != nil, vm.State == hypervisor.Busy:
			case deleting && vm.State == hypervisor.Absent:
				return true
			case deleting:
				err = d.Delete(r.ctx(), m)
			case vm.State == hypervisor.Absent:
				err = d.Create(r.ctx(), m, createOptions)
			case vm.State == hypervisor.Stopped && vm.OutOfSync == "":
				err = d.Start(r.ctx(), m)
			case vm.OutOfSync != "" || vm.UserData:
				err = hypervisortest.Sync(r.ctx(), d, m, vm.State == hypervisor.Running)
			default:
				return !d.(*driver).session.tags.NeedsRead(r.id(m))
			}
		}
		if err != nil && !hypervisor.IsWaiting(err) && !hypervisor.IsTransient(err) {
			failed = err
		}
		return failed != nil
	}).Should(BeTrue())
	return failed
}

// A role with the privileges of the guide is sufficient. Without one of them,
// the condition PermissionDenied names it.
func TestRole(t *testing.T) {
	b := newBedWithHosts(t)
	b.addLibrary()
	guide := guidePrivileges(b.WithT)
	r := &role{bed: b, privileges: guide}
	peer := r.groupedMachine("peer", "md")
	r.startAll(peer)

	template := vspherev1.NovaVSphereMachineSpec{Template: vspherev1.NovaVSphereTemplate{Name: vcenter.DefaultTemplate}}
	library := vspherev1.NovaVSphereMachineSpec{Template: vspherev1.NovaVSphereTemplate{
		ContentLibrary: vspherev1.NovaVSphereLibraryItem{Library: "images", Item: "debian"},
	}}
	vm := vspherev1.NovaVSphereMachineSpec{Template: vspherev1.NovaVSphereTemplate{Name: "/DC0/vm/plain"}}
	r.addPlainVM("plain")
	// Sources of machines that need a privilege which a template does not need.
	special := map[string]vspherev1.NovaVSphereMachineSpec{
		"VirtualMachine.Provisioning.Clone": vm,
		"VApp.Import":                       library, "ContentLibrary.ReadStorage": library,
	}
	b.vc.SetPrivileges(guide...)
	// The simulator deploys an OVF by requests of its own, with the same
	// account.
	ofImages := []string{"VirtualMachine.Provisioning.MarkAsTemplate", "VirtualMachine.State.CreateSnapshot"}
	for i, lacking := range guide {
		if slices.Contains(ofImages, lacking) {
			continue
		}
		t.Run("without "+lacking, func(t *testing.T) {
			g := NewWithT(t)
			source, ok := special[lacking]
			if !ok {
				source = template
			}
			m := r.machineWithAllSettings(fmt.Sprintf("without-%d", i), source)
			r.restart(peer) // otherwise names are cached that the account cannot read now
			r.privileges = slices.DeleteFunc(slices.Clone(guide), func(p string) bool { return p == lacking })
			b.vc.SetPrivileges(r.privileges...)
			err := r.createMachine(m)
			g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.PermissionDeniedReason), "%v", err)
			g.Expect(err).To(MatchError(ContainSubstring("privilege " + lacking)))
			r.privileges = guide
			b.vc.SetPrivileges(guide...)
			g.Expect(r.reconcile(markDeleting(m))).To(Succeed())
		})
	}
	for name, source := range map[string]vspherev1.NovaVSphereMachineSpec{"from-template": template, "from-vm": vm} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(r.createMachine(r.machineWithAllSettings(name, source))).To(Succeed())
		})
	}
	b.vc.SetPrivileges()
}

// A user with the two roles of the quick start creates and deletes the machines
// of its cluster, and lacks no privilege that the guide lists for every
// machine.
func TestQuickStartRoles(t *testing.T) {
	b := newBedWithHosts(t)
	roles := quickStartRoles(b.WithT)
	// Only a source that is not a template needs it.
	b.Expect(roles).To(ConsistOf(slices.DeleteFunc(privilegesOfEveryMachine(b.WithT), func(p string) bool {
		return p == "VirtualMachine.Provisioning.Clone"
	})))
	r := &role{bed: b, privileges: roles}
	b.vc.SetPrivileges(roles...)
	defer b.vc.SetPrivileges()
	for _, name := range []string{"control-plane-a", "control-plane-b"} {
		m := r.groupedMachine(name, "control-plane")
		m.Spec.Disks.Boot.SizeGiB = 30
		b.Expect(r.reconcile(m)).To(Succeed())
		if name == "control-plane-b" {
			b.Expect(r.reconcile(markDeleting(m))).To(Succeed())
		}
	}
	b.Expect(b.vc.Requests()).To(HaveKey("ReconfigureComputeResource_Task"), "the rule of the control plane was created")
}

// restart replaces the manager by one that knows only one machine.
func (r *role) restart(m *vspherev1.NovaVSphereMachine) {
	r.t.Helper()
	r.connector.Close()
	r.connector = r.newConnector()
	r.waitForState(m, hypervisor.Running)
}

// addPlainVM creates a VM that is neither a template nor a machine's.
func (b *bed) addPlainVM(name string, config ...types.VirtualMachineConfigSpec) {
	b.t.Helper()
	spec := types.VirtualMachineCloneSpec{}
	for i := range config {
		spec.Config = &config[i]
	}
	finder := b.finder()
	template, err := finder.VirtualMachine(b.ctx(), vcenter.DefaultTemplate)
	b.Expect(err).NotTo(HaveOccurred())
	folder, err := finder.Folder(b.ctx(), "/DC0/vm")
	b.Expect(err).NotTo(HaveOccurred())
	pool, err := finder.ResourcePool(b.ctx(), "DC0_C0_RP1")
	b.Expect(err).NotTo(HaveOccurred())
	spec.Location.Pool = types.NewReference(pool.Reference())
	b.wait(template.Clone(b.ctx(), folder, name, spec))
}
