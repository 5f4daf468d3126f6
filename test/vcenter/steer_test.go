package vcenter_test

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func TestSteer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "vcenter.sock")
	b := start(t, vcenter.Options{ControlSocket: socket})
	control := vcenter.NewControl(socket)
	vm := b.clone("vm", b.cloneSpec())
	b.done(vm.PowerOn(b.ctx))
	id := b.vmInfo("vm").Ref

	host := func() string {
		at, err := vm.HostSystem(b.ctx)
		b.Expect(err).NotTo(HaveOccurred())
		name, err := at.ObjectName(b.ctx)
		b.Expect(err).NotTo(HaveOccurred())
		return name
	}
	for _, to := range []string{"DC0_C0_H0", "DC0_C0_H1"} {
		b.Expect(control.MigrateVM(b.ctx, id, to)).To(Succeed())
		b.Expect(host()).To(Equal(to))
	}
	b.Expect(control.MigrateVM(b.ctx, id, "nowhere")).To(MatchError(ContainSubstring("no host")))

	b.Expect(control.SetHostConnected(b.ctx, "DC0_C0_H1", false)).To(Succeed())
	b.Expect(b.read(vm).Runtime.ConnectionState).To(Equal(types.VirtualMachineConnectionStateDisconnected))
	b.Expect(control.SetHostConnected(b.ctx, "DC0_C0_H1", true)).To(Succeed())
	b.Expect(control.SetConnectionState(b.ctx, id, "orphaned")).To(Succeed())
	b.Expect(b.read(vm).Runtime.ConnectionState).To(Equal(types.VirtualMachineConnectionStateOrphaned))
	b.Expect(control.SetConnectionState(b.ctx, id, "connected")).To(Succeed())

	b.Expect(control.SetToolsRunning(b.ctx, id, true)).To(Succeed())
	b.Expect(b.read(vm).Guest.ToolsRunningStatus).To(Equal(string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)))

	b.Expect(control.SetHidden(b.ctx, id, true)).To(Succeed())
	var it mo.VirtualMachine
	err := vm.Properties(b.ctx, vm.Reference(), []string{"name"}, &it)
	b.Expect(fault.Is(err, &types.NoPermission{})).To(BeTrue(), "%v", err)
	_, err = vm.PowerOff(b.ctx)
	b.Expect(fault.Is(err, &types.NoPermission{})).To(BeTrue(), "%v", err)
	b.Expect(control.SetHidden(b.ctx, id, false)).To(Succeed())
	b.Expect(control.SetHidden(b.ctx, "nobody", true)).To(MatchError(ContainSubstring("no VM or folder")))

	b.done(vm.PowerOff(b.ctx))
	now, err := control.ReregisterVM(b.ctx, id)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(now).NotTo(Equal(id))
	b.Expect(b.vmInfo("vm").Ref).To(Equal(now))
}

// Destroying a VM takes every disk that is attached, and no other.
func TestDisksOfAVM(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "vcenter.sock")
	b := start(t, vcenter.Options{ControlSocket: socket})
	control := vcenter.NewControl(socket)
	has := func(file string) bool {
		found, err := control.HasFile(b.ctx, file)
		b.Expect(err).NotTo(HaveOccurred())
		return found
	}
	vm := b.clone("vm", b.cloneSpec())
	id := b.vmInfo("vm").Ref
	const kept, lost, local = "[LocalDS_1] fcd/kept.vmdk", "[LocalDS_1] fcd/lost.vmdk", "[LocalDS_0] vm/local.vmdk"
	b.Expect(control.AttachDisk(b.ctx, id, vcenter.Disk{File: kept, FirstClass: "1"})).To(Succeed())
	b.Expect(control.AttachDisk(b.ctx, id, vcenter.Disk{File: lost, FirstClass: "2"})).To(Succeed())
	b.Expect(control.AttachDisk(b.ctx, id, vcenter.Disk{File: local})).To(Succeed())
	b.Expect(control.AttachDisk(b.ctx, id, vcenter.Disk{File: "nonsense"})).To(MatchError(ContainSubstring("no path")))

	b.done(vm.CreateSnapshot(b.ctx, "s", "", false, false))
	devices, err := vm.Device(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	disk := func(file string) types.BaseVirtualDevice {
		for _, d := range devices {
			if it, ok := d.(*types.VirtualDisk); ok {
				if at, ok := it.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok && at.FileName == file {
					return it
				}
			}
		}
		return nil
	}
	b.Expect(vm.RemoveDevice(b.ctx, true, disk(kept))).To(MatchError(ContainSubstring("not allowed in the current state")), "a snapshot has it")
	task, err := vm.RemoveAllSnapshot(b.ctx, nil)
	b.done(task, err)
	b.Expect(has(kept)).To(BeTrue())
	b.Expect(vm.RemoveDevice(b.ctx, true, disk(kept))).To(Succeed())
	b.Expect(vm.RemoveDevice(b.ctx, true, disk(local))).To(Succeed())
	b.done(vm.Destroy(b.ctx))
	b.Expect(has(kept)).To(BeTrue())
	b.Expect(has(local)).To(BeTrue(), "it is in the directory of a VM that went")
	b.Expect(has(lost)).To(BeFalse())
}

func TestSuspend(t *testing.T) {
	b := start(t, vcenter.Options{})
	vm := b.clone("vm", b.cloneSpec())
	b.done(vm.PowerOn(b.ctx))
	b.done(vm.Suspend(b.ctx))
	b.Expect(b.read(vm).Runtime.PowerState).To(Equal(types.VirtualMachinePowerStateSuspended))
	b.done(vm.PowerOn(b.ctx))
	b.Expect(b.read(vm).Runtime.PowerState).To(Equal(types.VirtualMachinePowerStatePoweredOn))
	b.done(vm.Suspend(b.ctx))
	b.done(vm.PowerOff(b.ctx))
	b.Expect(b.read(vm).Runtime.PowerState).To(Equal(types.VirtualMachinePowerStatePoweredOff))
}

func TestRules(t *testing.T) {
	b := start(t, vcenter.Options{})
	one, two := b.clone("one", b.cloneSpec()), b.clone("two", b.cloneSpec())
	cluster, err := b.finder.ClusterComputeResource(b.ctx, "DC0_C0")
	b.Expect(err).NotTo(HaveOccurred())
	change := func(op types.ArrayUpdateOperation, key int32, vms ...*object.VirtualMachine) error {
		spec := types.ClusterRuleSpec{ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: op}}
		if op == types.ArrayUpdateOperationRemove {
			spec.RemoveKey = key
		} else {
			rule := &types.ClusterAntiAffinityRuleSpec{ClusterRuleInfo: types.ClusterRuleInfo{Key: key, Name: "apart", Enabled: ptr.To(true)}}
			for _, vm := range vms {
				rule.Vm = append(rule.Vm, vm.Reference())
			}
			spec.Info = rule
		}
		task, err := cluster.Reconfigure(b.ctx, &types.ClusterConfigSpecEx{RulesSpec: []types.ClusterRuleSpec{spec}}, true)
		if err != nil {
			return err
		}
		return task.Wait(b.ctx)
	}
	add, edit, remove := types.ArrayUpdateOperationAdd, types.ArrayUpdateOperationEdit, types.ArrayUpdateOperationRemove
	b.Expect(change(add, 0, one)).NotTo(Succeed(), "one VM cannot be apart from itself")
	b.Expect(change(add, 0, one, two)).To(Succeed())
	b.Expect(change(add, 0, one, two)).To(MatchError(ContainSubstring("already exists")))
	b.Expect(b.server.Rules()).To(Equal([]vcenter.Rule{{Name: "apart", VMs: []string{"one", "two"}, Enabled: true}}))
	config, err := cluster.Configuration(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	key := config.Rule[0].GetClusterRuleInfo().Key
	b.Expect(change(edit, key+1, one, two)).NotTo(Succeed())
	three := b.clone("three", b.cloneSpec())
	b.Expect(change(edit, key, one, two, three)).To(Succeed())
	b.done(three.Destroy(b.ctx))
	b.done(two.Destroy(b.ctx))
	b.Expect(b.server.Rules()).To(ConsistOf(HaveField("VMs", []string{"one"})), "the rest of a rule remains")
	b.Expect(change(remove, key)).To(Succeed())
	b.Expect(change(remove, key)).NotTo(Succeed())
	b.Expect(b.server.Rules()).To(BeEmpty())
}
