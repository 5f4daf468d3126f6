package vcenter_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// A VM that another client creates has devices of its own.
func TestCreateVM(t *testing.T) {
	b := start(t, vcenter.Options{})
	folder, err := b.finder.Folder(b.ctx, "/DC0/vm/"+vcenter.DefaultFolder)
	b.Expect(err).NotTo(HaveOccurred())
	pool, err := b.finder.ResourcePool(b.ctx, "DC0_C0/Resources")
	b.Expect(err).NotTo(HaveOccurred())
	request := func(name string) (*object.Task, error) {
		return folder.CreateVM(b.ctx, types.VirtualMachineConfigSpec{
			Name: name, GuestId: "otherGuest64", NumCPUs: 2, MemoryMB: 1024, Files: &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_1]"},
		}, pool, nil)
	}
	create := func(name string) *object.VirtualMachine {
		task, err := request(name)
		b.Expect(err).NotTo(HaveOccurred())
		info, err := task.WaitForResult(b.ctx)
		b.Expect(err).NotTo(HaveOccurred())
		return object.NewVirtualMachine(b.client, info.Result.(types.ManagedObjectReference))
	}
	clone := b.clone("clone", b.cloneSpec())
	one := create("one")
	two := create("two")
	config := b.read(one).Config
	b.Expect(config.Uuid).To(HavePrefix("42"))
	b.Expect(config.InstanceUuid).To(HavePrefix("50"))
	b.Expect(config.InstanceUuid).NotTo(Equal(b.read(two).Config.InstanceUuid))

	card := &types.VirtualVmxnet3{VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: types.VirtualEthernetCard{VirtualDevice: types.VirtualDevice{
		Key: -1, ControllerKey: 100, Backing: &types.VirtualEthernetCardNetworkBackingInfo{
			VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: "VM Network"},
		},
	}}}}
	attached := func(vm *object.VirtualMachine) (n int) {
		for _, device := range b.read(vm).Config.Hardware.Device {
			if controller, ok := device.(types.BaseVirtualController); ok {
				n += len(controller.GetVirtualController().Device)
			}
		}
		return n
	}
	before := []int{attached(one), attached(two), attached(clone)}
	b.Expect(one.AddDevice(b.ctx, card)).To(Succeed())
	b.Expect([]int{attached(one), attached(two), attached(clone)}).To(Equal([]int{before[0] + 1, before[1], before[2]}))

	task, err := request("one")
	b.Expect(err).NotTo(HaveOccurred())
	fault, _ := b.failed(task)
	b.Expect(fault).To(BeAssignableToTypeOf(&types.DuplicateName{}))
	b.server.SetPrivileges("VirtualMachine.Config.CPUCount")
	_, err = request("three")
	b.Expect(err).To(MatchError(ContainSubstring("ermission")))
}
