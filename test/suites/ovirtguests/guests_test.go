package ovirtguests_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The host of a VM", Ordered, func() {
	const name = "guest-1"

	BeforeAll(func() {
		create(name, initialization(name, "write_files:\n- {path: /etc/greeting, content: hello}\n"))
		act(name, "start")
	})

	It("boots from the engine's drive and reports its address", func(ctx context.Context) {
		Eventually(address(name)).WithTimeout(bootTimeout).Should(Succeed())
		Expect(vm(name).Status).To(Equal("up"))
		booted(ctx, name)
		Expect(inside(ctx, name, "cat", "/etc/greeting")()).To(Equal("hello"))
		Expect(inside(ctx, name, "hostname")()).To(Equal(name))
		Expect(inside(ctx, name, "hostname", "-I")()).To(ContainSubstring(vm(name).Addresses[0]))
		Expect(inside(ctx, name, "cat", "/run/cloud-init/result.json")()).To(ContainSubstring("DataSourceConfigDrive"))
	})

	It("has the VM's hardware", func(ctx context.Context) {
		Expect(inside(ctx, name, "cat", "/sys/class/dmi/id/product_uuid")()).To(Equal(vm(name).ID))
		Expect(inside(ctx, name, "cat", "/sys/class/dmi/id/sys_vendor")()).To(Equal("oVirt"))
		Expect(inside(ctx, name, "systemd-detect-virt")()).To(Equal("kvm"))
		Expect(inside(ctx, name, "cat", "/sys/class/net/eth0/address")()).To(Equal(vm(name).NICs[0].MAC))
	})

	It("powers its VM off by itself", func(ctx context.Context) {
		_, _ = inside(ctx, name, "systemctl", "poweroff")()
		Eventually(func() string { return vm(name).Status }).WithTimeout(bootTimeout).Should(Equal("down"))
		Expect(vm(name).Addresses).To(BeEmpty())
		Expect(guests.Host(vm(name).ID)).To(BeNil())
	})

	It("keeps its disk and its name, but not the drive, when it is started again", func(ctx context.Context) {
		act(name, "start")
		Eventually(address(name)).WithTimeout(bootTimeout).Should(Succeed())
		Eventually(inside(ctx, name, "systemctl", "is-system-running")).WithTimeout(bootTimeout).Should(Equal("running"))
		Expect(inside(ctx, name, "cat", "/etc/greeting")()).To(Equal("hello"))
		Expect(inside(ctx, name, "hostname")()).To(Equal(name))
		_, err := inside(ctx, name, "ls", "/var/lib/cloud/seed/config_drive")()
		Expect(err).To(MatchError(ContainSubstring("No such file")))
	})

	It("shuts down on a shutdown request for its VM", func() {
		act(name, "shutdown")
		Eventually(func() string { return vm(name).Status }).WithTimeout(bootTimeout).Should(Equal("down"))
	})

	It("ends with its VM", func() {
		act(name, "start")
		Eventually(func() any { return guests.Host(vm(name).ID) }).WithTimeout(bootTimeout).Should(Not(BeNil()))
		act(name, "stop")
		Eventually(func() string { return vm(name).Status }).WithTimeout(bootTimeout).Should(Equal("down"))
		Expect(guests.Host(vm(name).ID)).To(BeNil())
		do("DELETE", "/vms/"+vm(name).ID, "")
		Expect(vm(name)).To(BeZero())
	})
})
