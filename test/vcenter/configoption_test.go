package vcenter_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// New VMs have the default hardware version of the cluster, as the template.
func TestConfigOption(t *testing.T) {
	b := start(t, vcenter.Options{})
	cluster, err := b.finder.ClusterComputeResource(b.ctx, "DC0_C0")
	b.Expect(err).NotTo(HaveOccurred())
	browser, err := cluster.EnvironmentBrowser(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	option, err := browser.QueryConfigOption(b.ctx, nil)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(option.Version).To(Equal(b.read(b.template()).Config.Version))
	b.Expect(option.HardwareOptions.HwVersion).To(BeEquivalentTo(21))

	option, err = browser.QueryConfigOption(b.ctx, &types.EnvironmentBrowserConfigOptionQuerySpec{Key: "vmx-19"})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(option.HardwareOptions.HwVersion).To(BeEquivalentTo(19))
	res, err := methods.QueryConfigOption(b.ctx, b.client, &types.QueryConfigOption{This: browser.Reference()})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(res.Returnval.HardwareOptions.HwVersion).To(BeEquivalentTo(21))
	_, err = methods.QueryConfigOption(b.ctx, b.client, &types.QueryConfigOption{This: browser.Reference(), Key: "vmx-99"})
	b.Expect(err).To(HaveOccurred())
}

// Clients of older versions of the API send these fields back as they read them.
func TestDefaultsOfHardware(t *testing.T) {
	b := start(t, vcenter.Options{})
	vm := b.clone("vm", b.cloneSpec())
	b.done(vm.Reconfigure(b.ctx, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{&types.VirtualDeviceConfigSpec{
		Operation: types.VirtualDeviceConfigSpecOperationAdd,
		Device: &types.ParaVirtualSCSIController{VirtualSCSIController: types.VirtualSCSIController{
			SharedBus:         types.VirtualSCSISharingNoSharing,
			VirtualController: types.VirtualController{BusNumber: 1, VirtualDevice: types.VirtualDevice{Key: -1}},
		}},
	}}}))
	config := b.read(vm).Config
	b.Expect(config.SwapPlacement).To(Equal("inherit"))
	units := 0
	for _, device := range config.Hardware.Device {
		if controller, ok := device.(*types.ParaVirtualSCSIController); ok {
			b.Expect(controller.ScsiCtlrUnitNumber).To(BeEquivalentTo(7))
			units++
		}
	}
	b.Expect(units).To(Equal(2))
	b.done(vm.Reconfigure(b.ctx, types.VirtualMachineConfigSpec{SwapPlacement: "vmDirectory", Annotation: "changed"}))
	b.Expect(b.read(vm).Config.SwapPlacement).To(Equal("vmDirectory"))
	b.Expect(b.read(vm).Summary.Config.Annotation).To(Equal("changed"))
}
