package vcenter_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// takeSnapshot returns the snapshot that the task results in.
func (b *bench) takeSnapshot(vm *object.VirtualMachine, name string, memory bool) types.ManagedObjectReference {
	task, err := vm.CreateSnapshot(b.ctx, name, "", memory, false)
	b.Expect(err).NotTo(HaveOccurred())
	info, err := task.WaitForResult(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(info.Result).To(HaveField("Type", "VirtualMachineSnapshot"))
	return info.Result.(types.ManagedObjectReference)
}

func (b *bench) snapshots(vm *object.VirtualMachine) *types.VirtualMachineSnapshotInfo {
	var out mo.VirtualMachine
	b.Expect(vm.Properties(b.ctx, vm.Reference(), []string{"snapshot"}, &out)).To(Succeed())
	return out.Snapshot
}

func TestRevertToSnapshot(t *testing.T) {
	b := start(t, vcenter.Options{})
	vm := b.clone("vm", b.cloneSpec())
	change := func(cpus int32, value string) {
		b.done(vm.Reconfigure(b.ctx, types.VirtualMachineConfigSpec{
			NumCPUs: cpus, ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "guestinfo.color", Value: value}},
		}))
	}
	has := func(cpus int32, value string) {
		now := b.read(vm)
		b.Expect(now.Config.Hardware.NumCPU).To(Equal(cpus))
		b.Expect(now.Summary.Config.NumCpu).To(Equal(cpus))
		b.Expect(object.OptionValueList(now.Config.ExtraConfig).Map()).To(HaveKeyWithValue("guestinfo.color", value))
	}
	change(2, "red")
	before := b.read(vm)
	b.takeSnapshot(vm, "off", false)
	change(4, "green")
	b.done(vm.PowerOn(b.ctx))
	b.takeSnapshot(vm, "on", true)

	b.done(vm.RevertToSnapshot(b.ctx, "off", false))
	has(2, "red")
	now := b.read(vm)
	b.Expect(now.Runtime.PowerState).To(Equal(types.VirtualMachinePowerStatePoweredOff), "the snapshot has no memory")
	b.Expect(now.Config.Uuid).To(Equal(before.Config.Uuid))
	change(8, "blue")
	b.done(vm.RevertToSnapshot(b.ctx, "on", true))
	has(4, "green")
	b.Expect(b.read(vm).Runtime.PowerState).To(Equal(types.VirtualMachinePowerStatePoweredOff), "suppressPowerOn is set")
	b.done(vm.RevertToCurrentSnapshot(b.ctx, false))
	b.Expect(b.read(vm).Runtime.PowerState).To(Equal(types.VirtualMachinePowerStatePoweredOn))
	b.done(vm.RevertToSnapshot(b.ctx, "off", false))
	has(2, "red")
}

func TestRemoveSnapshot(t *testing.T) {
	b := start(t, vcenter.Options{})
	vm := b.clone("vm", b.cloneSpec())
	root := b.takeSnapshot(vm, "root", false)
	child := b.takeSnapshot(vm, "child", false)
	b.takeSnapshot(vm, "grandchild", false)
	b.done(vm.RevertToSnapshot(b.ctx, "root", false))

	remove := func(snapshot types.ManagedObjectReference, withChildren bool) {
		res, err := methods.RemoveSnapshot_Task(b.ctx, b.client, &types.RemoveSnapshot_Task{This: snapshot, RemoveChildren: withChildren})
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(object.NewTask(b.client, res.Returnval).Wait(b.ctx)).To(Succeed())
	}
	remove(root, false)
	now := b.snapshots(vm)
	b.Expect(now.CurrentSnapshot).To(BeNil(), "the current one was a root")
	b.Expect(now.RootSnapshotList).To(HaveLen(1))
	b.Expect(now.RootSnapshotList[0].Snapshot).To(Equal(child))
	b.done(vm.RevertToSnapshot(b.ctx, "grandchild", false))
	b.Expect(b.snapshots(vm).CurrentSnapshot).NotTo(BeNil())

	remove(child, true)
	b.Expect(b.snapshots(vm)).To(BeNil())
	_, err := methods.RemoveSnapshot_Task(b.ctx, b.client, &types.RemoveSnapshot_Task{This: child})
	b.Expect(err).To(MatchError(ContainSubstring("has already been deleted")))
	b.done(vm.Destroy(b.ctx))
}
