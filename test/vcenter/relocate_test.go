package vcenter_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func TestRelocate(t *testing.T) {
	b := start(t, vcenter.Options{})
	vm := b.clone("vm", b.cloneSpec())
	relocate := func(spec types.VirtualMachineRelocateSpec) *object.Task {
		task, err := vm.Relocate(b.ctx, spec, types.VirtualMachineMovePriorityDefaultPriority)
		b.Expect(err).NotTo(HaveOccurred())
		return task
	}
	listed := func(at types.ManagedObjectReference) (has bool) {
		var vms []types.ManagedObjectReference
		switch at.Type {
		case "HostSystem":
			var out mo.HostSystem
			b.Expect(object.NewCommon(b.client, at).Properties(b.ctx, at, []string{"vm"}, &out)).To(Succeed())
			vms = out.Vm
		case "Datastore":
			var out mo.Datastore
			b.Expect(object.NewCommon(b.client, at).Properties(b.ctx, at, []string{"vm"}, &out)).To(Succeed())
			vms = out.Vm
		case "ResourcePool":
			var out mo.ResourcePool
			b.Expect(object.NewCommon(b.client, at).Properties(b.ctx, at, []string{"vm"}, &out)).To(Succeed())
			vms = out.Vm
		}
		for _, each := range vms {
			has = has || each == vm.Reference()
		}
		return has
	}
	file := func(name string) bool {
		found, err := b.server.HasFile(name)
		b.Expect(err).NotTo(HaveOccurred())
		return found
	}

	before := b.read(vm)
	hosts, err := b.finder.HostSystemList(b.ctx, "*")
	b.Expect(err).NotTo(HaveOccurred())
	for _, host := range hosts {
		to := host.Reference()
		b.Expect(relocate(types.VirtualMachineRelocateSpec{Host: &to}).Wait(b.ctx)).To(Succeed())
		b.Expect(b.read(vm).Runtime.Host).To(HaveValue(Equal(to)))
		for _, other := range hosts {
			b.Expect(listed(other.Reference())).To(Equal(other.Reference() == to))
		}
	}
	pool, err := b.finder.ResourcePool(b.ctx, "DC0_C0_RP1")
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(relocate(types.VirtualMachineRelocateSpec{Pool: types.NewReference(pool.Reference())}).Wait(b.ctx)).To(Succeed())
	b.Expect(listed(pool.Reference())).To(BeTrue())

	to, err := b.finder.Datastore(b.ctx, "LocalDS_0")
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(file("[LocalDS_1] vm/vm.vmdk")).To(BeTrue())
	b.Expect(relocate(types.VirtualMachineRelocateSpec{Datastore: types.NewReference(to.Reference())}).Wait(b.ctx)).To(Succeed())
	now := b.read(vm)
	b.Expect(now.Datastore).To(ConsistOf(to.Reference()))
	b.Expect(now.Config.Files.VmPathName).To(HavePrefix("[LocalDS_0] vm"))
	b.Expect(now.Config.Uuid).To(Equal(before.Config.Uuid))
	b.Expect(file("[LocalDS_0] vm/vm.vmdk")).To(BeTrue())
	b.Expect(file("[LocalDS_1] vm/vm.vmdk")).To(BeFalse())
	b.Expect(file("[LocalDS_1] vm")).To(BeFalse())
	b.Expect(listed(to.Reference())).To(BeTrue())
	b.Expect(listed(before.Datastore[0])).To(BeFalse())

	_, message := b.failed(relocate(types.VirtualMachineRelocateSpec{Disk: []types.VirtualMachineRelocateSpecDiskLocator{{DiskId: 4000, Datastore: to.Reference()}}}))
	b.Expect(message).To(ContainSubstring("spec.disk"))
	b.failed(relocate(types.VirtualMachineRelocateSpec{Datastore: &types.ManagedObjectReference{Type: "Datastore", Value: "datastore-0"}}))
	b.Expect(b.server.SetHostConnected("DC0_C0_H0", false)).To(Succeed())
	away := hosts[0].Reference()
	b.failed(relocate(types.VirtualMachineRelocateSpec{Host: &away}))

	b.done(vm.Destroy(b.ctx))
	b.Expect(file("[LocalDS_0] vm/vm.vmdk")).To(BeFalse())
}

func TestRelocateNeedsPrivileges(t *testing.T) {
	b := start(t, vcenter.Options{})
	vm := b.clone("vm", b.cloneSpec())
	pool, err := b.finder.ResourcePool(b.ctx, "DC0_C0_RP1")
	b.Expect(err).NotTo(HaveOccurred())
	spec := types.VirtualMachineRelocateSpec{Pool: types.NewReference(pool.Reference())}
	for _, privileges := range [][]string{{"Resource.HotMigrate", "Resource.AssignVMToPool"}, {"Resource.ColdMigrate"}} {
		b.server.SetPrivileges(privileges...)
		_, err := vm.Relocate(b.ctx, spec, types.VirtualMachineMovePriorityDefaultPriority)
		b.Expect(err).To(MatchError(ContainSubstring("ermission")))
	}
	b.server.SetPrivileges("Resource.ColdMigrate", "Resource.AssignVMToPool")
	b.done(vm.Relocate(b.ctx, spec, types.VirtualMachineMovePriorityDefaultPriority))
}
