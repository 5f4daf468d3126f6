package guests_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

var _ = Describe("The host of a VM", Ordered, func() {
	var machine *object.VirtualMachine

	BeforeAll(func(ctx context.Context) {
		machine = clone(ctx)
	})

	It("boots from the VM's user data and reports its address", func(ctx context.Context) {
		Eventually(address).WithTimeout(bootTimeout).Should(Succeed())
		Eventually(inside(ctx, host.CloudInitStatus...)).WithTimeout(bootTimeout).Should(Equal("status: done"))
		Expect(inside(ctx, "cat", "/etc/greeting")()).To(Equal("hello"))
		Expect(inside(ctx, "hostname", "-I")()).To(ContainSubstring(vm().IPAddress))
	})

	It("has the VM's hardware", func(ctx context.Context) {
		Expect(inside(ctx, "cat", "/sys/class/dmi/id/product_uuid")()).To(Equal(vm().BIOSUUID))
		Expect(inside(ctx, "cat", "/sys/class/dmi/id/product_serial")()).To(Equal(vcenter.DMISerial(vm().BIOSUUID)))
		Expect(inside(ctx, "cat", "/sys/class/net/eth0/address")()).To(Equal(vm().NICs[0].MAC))
	})

	It("shares guestinfo with the VM", func(ctx context.Context) {
		// cloud-init reports the address in this way.
		Eventually(func() map[string]string { return vm().ExtraConfig }).WithTimeout(bootTimeout).
			Should(HaveKeyWithValue("guestinfo.local-ipv4", vm().IPAddress))
		task, err := machine.Reconfigure(ctx, types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{
			&types.OptionValue{Key: "guestinfo.userdata", Value: ""},
			&types.OptionValue{Key: "guestinfo.word", Value: "seen"},
		}})
		done(ctx, task, err)
		info, err := guests.Host(vm().BIOSUUID).GuestInfo()
		Expect(err).NotTo(HaveOccurred())
		Expect(info).NotTo(HaveKey("guestinfo.userdata"))
		Expect(info).To(HaveKeyWithValue("guestinfo.word", "seen"))
	})

	It("powers its VM off by itself", func(ctx context.Context) {
		_, _ = inside(ctx, "systemctl", "poweroff")()
		Eventually(func() bool { return vm().PoweredOn }).WithTimeout(bootTimeout).Should(BeFalse())
		Expect(vm().IPAddress).To(BeEmpty())
		Expect(guests.Host(vm().BIOSUUID)).To(BeNil())
	})

	It("keeps its disk while the VM is off", func(ctx context.Context) {
		task, err := machine.PowerOn(ctx)
		done(ctx, task, err)
		Eventually(inside(ctx, "cat", "/etc/greeting")).WithTimeout(bootTimeout).Should(Equal("hello"))
		Eventually(address).WithTimeout(bootTimeout).Should(Succeed())
	})

	It("shuts down on a shutdown request for its VM", func(ctx context.Context) {
		Eventually(inside(ctx, "systemctl", "is-system-running")).WithTimeout(bootTimeout).Should(Equal("running"))
		Expect(machine.ShutdownGuest(ctx)).To(Succeed())
		Eventually(func() bool { return vm().PoweredOn }).WithTimeout(bootTimeout).Should(BeFalse())
	})

	It("ends with its VM", func(ctx context.Context) {
		task, err := machine.PowerOn(ctx)
		done(ctx, task, err)
		task, err = machine.PowerOff(ctx)
		done(ctx, task, err)
		Expect(guests.Host(vm().BIOSUUID)).To(BeNil())
		task, err = machine.Destroy(ctx)
		done(ctx, task, err)
		Expect(vm()).To(BeZero())
	})
})
