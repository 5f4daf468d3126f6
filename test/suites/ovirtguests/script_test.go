package ovirtguests_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// engineCommand is the file that the runcmd of the engine's own document creates.
const engineCommand = `["NoCloud", "ConfigDrive"]`

// The engine adds its own document in front of the script and merges both into one.
// docs/ovirtsim.md describes the result.
var _ = Describe("A custom script", func() {
	power := func(name, body string) {
		create(name, body)
		DeferCleanup(remove, name)
		act(name, "start")
		Eventually(address(name)).WithTimeout(bootTimeout).Should(Succeed())
	}
	settings := func(ctx context.Context, name string) (string, error) {
		return inside(ctx, name, "cat", "/etc/cloud/cloud.cfg")()
	}

	It("overrides the keys of the engine that it sets", func(ctx context.Context) {
		const name = "again"
		power(name, initialization(name, "## template: jinja\n#cloud-config\n"+
			"bootcmd: ['echo bootcmd > /run/bootcmd']\n"+
			"write_files:\n- {path: /run/host, content: '{{ ds.meta_data.hostname }} < & >'}\n"+
			"output: {all: '>> /var/log/ours.log'}\n"+
			"users: [{name: someone}]\n"+
			"runcmd: ['echo ours', 'echo runcmd > /run/runcmd']\n"))
		booted(ctx, name)
		Expect(inside(ctx, name, "cat", "/run/bootcmd", "/run/runcmd")()).To(Equal("bootcmd\nruncmd"))
		Expect(inside(ctx, name, "id", "-un", "someone")()).To(Equal("someone"))
		By("leaving the engine's commands out")
		Expect(settings(ctx, name)).NotTo(ContainSubstring(engineCommand))
		By("writing its output to its file")
		Expect(inside(ctx, name, "cat", "/var/log/ours.log")()).To(ContainSubstring("ours"))
		By("not being a template: the first line is the engine's")
		Expect(inside(ctx, name, "cat", "/run/host")()).To(Equal("{{ ds.meta_data.hostname }} < & >"))
	})

	It("leaves the engine's other keys in force", func(ctx context.Context) {
		const name = "beside"
		power(name, initialization(name, "write_files:\n- {path: /run/ours, content: ours}\n"))
		booted(ctx, name)
		Expect(inside(ctx, name, "cat", "/run/ours")()).To(Equal("ours"))
		Expect(settings(ctx, name)).To(ContainSubstring(engineCommand))
	})

	DescribeTable("is lost altogether, and the engine's document with it", func(ctx context.Context, name, script string) {
		power(name, initialization(name, script))
		booted(ctx, name)
		_, err := inside(ctx, name, "ls", "/run/ours")()
		Expect(err).To(MatchError(ContainSubstring("No such file")))
		Expect(settings(ctx, name)).NotTo(ContainSubstring(engineCommand))
		Expect(inside(ctx, name, "cat", "/var/log/cloud-init.log")()).To(ContainSubstring("Failed loading yaml blob"))
	},
		Entry("as a shell script", "shell", "#!/bin/sh\ntouch /run/ours\n"),
		Entry("as a document of its own", "document", "---\nruncmd: [touch /run/ours]\n"),
		Entry("as parts of a mail", "parts", strings.Join([]string{
			"Content-Type: multipart/mixed; boundary=x", "MIME-Version: 1.0", "", "--x", "Content-Type: text/cloud-config", "",
			"runcmd: [touch /run/ours]", "--x--", "",
		}, "\n")),
	)

	It("is not needed beside a payload, which cloud-init gets as it is", func(ctx context.Context) {
		const name = "payload"
		file := func(file, content string) string {
			return "<file><name>" + file + "</name><content>" + escaped(content) + "</content></file>"
		}
		power(name, "<payloads><payload><type>cdrom</type><volume_id>cidata</volume_id><files>"+
			file("meta-data", "instance-id: "+name+"\nlocal-hostname: "+name+"\n")+
			file("network-config", "version: 2\nethernets: {eth0: {dhcp4: true}}\n")+
			file("user-data", "## template: jinja\n#cloud-config\nwrite_files:\n- {path: /run/host, content: '{{ ds.meta_data.local_hostname }}'}\n")+
			"</files></payload></payloads>"+initialization("unused", "runcmd: [touch /run/unused]\n"))
		booted(ctx, name)
		Expect(inside(ctx, name, "cat", "/run/host")()).To(Equal(name))
		_, err := inside(ctx, name, "ls", "/run/unused")()
		Expect(err).To(MatchError(ContainSubstring("No such file")))
	})

	DescribeTable("sets up all network cards", func(ctx context.Context, name, protocol, file string) {
		nic := func(card, address, gateway string) string {
			return "<nic_configuration><name>" + card + "</name><on_boot>true</on_boot><boot_protocol>static</boot_protocol><ip><address>" +
				address + "</address><netmask>255.255.255.0</netmask>" + gateway + "</ip></nic_configuration>"
		}
		create(name, "<initialization><cloud_init_network_protocol>"+protocol+"</cloud_init_network_protocol><host_name>"+name+"</host_name><nic_configurations>"+
			nic("eth0", "10.77.0.60", "<gateway>10.77.0.1</gateway>")+nic("eth1", "10.78.0.60", "")+
			"</nic_configurations><dns_servers>10.77.0.1</dns_servers></initialization>")
		DeferCleanup(remove, name)
		do("POST", "/vms/"+vm(name).ID+"/nics", "<nic><name>nic2</name></nic>")
		act(name, "start")
		Expect(vm(name).Drive).To(HaveKey(file))
		Eventually(func() []string { return vm(name).Addresses }).WithTimeout(bootTimeout).Should(ConsistOf("10.77.0.60", "10.78.0.60"))
		booted(ctx, name)
		Expect(inside(ctx, name, "ip", "route", "show", "default")()).To(ContainSubstring("via 10.77.0.1"))
		Expect(inside(ctx, name, "hostname")()).To(Equal(name))
	},
		Entry("by network data", "cards", "openstack_metadata", "openstack/latest/network_data.json"),
		Entry("by an interfaces file", "interfaces", "eni", "openstack/content/0000"),
	)
})
