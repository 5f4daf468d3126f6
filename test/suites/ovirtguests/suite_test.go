package ovirtguests_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

const (
	bed         = "ovirt-guests"
	bootTimeout = 3 * time.Minute
)

var (
	server *ovirtsim.Server
	guests *ovirtsim.HostGuests
)

func TestOvirtGuests(t *testing.T) {
	RegisterFailHandler(Fail)
	// Commands on a host that is booting compete with its boot for processor time.
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "oVirt guests")
}

var _ = BeforeSuite(func(ctx context.Context) {
	assets, err := host.Prepare(ctx, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	// A run that was killed left these behind.
	Expect(host.Cleanup(ctx, bed, GinkgoWriter)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(host.Cleanup(ctx, bed, GinkgoWriter, dir)).To(Succeed())
	})
	Expect(host.NewNetwork(bed, dir+"/network", GinkgoWriter).Up(ctx)).To(Succeed())

	guests = ovirtsim.NewHostGuests(&host.Runner{Bed: bed, Dir: dir + "/disks", Assets: assets})
	server, err = ovirtsim.Start(context.WithoutCancel(ctx), ovirtsim.Options{
		Guests: guests,
		// A VM is up only after its host has reported it.
		Timings:   map[string]time.Duration{ovirtsim.TimePoweringUp: time.Hour},
		Inventory: ovirtsim.Inventory{Templates: []ovirtsim.TemplateSpec{{Name: "node", DiskGiB: 20}}},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Stop)
})

// The console of a failed host contains the cause.
var _ = JustAfterEach(func() {
	if !CurrentSpecReport().Failed() {
		return
	}
	for _, machine := range server.VMs() {
		h := guests.Host(machine.ID)
		if h == nil {
			continue
		}
		if console, err := os.ReadFile(h.ConsoleLog()); err == nil {
			AddReportEntry("console of "+machine.Name, string(console))
		}
	}
})

// do sends the engine a request that has to succeed.
func do(method, path, body string) {
	GinkgoHelper()
	status, answer := server.Do(method, path, body)
	Expect(status).To(BeNumerically("<", 300), answer)
}

// create makes a VM of one network card and waits until it is down.
func create(name, more string) {
	GinkgoHelper()
	do("POST", "/vms", fmt.Sprintf("<vm><name>%s</name><cluster><name>Default</name></cluster><template><name>node</name></template>%s</vm>", name, more))
	Eventually(func() string { return vm(name).Status }).WithTimeout(time.Minute).Should(Equal("down"))
	do("POST", "/vms/"+vm(name).ID+"/nics", "<nic><name>nic1</name></nic>")
}

func act(name, action string) {
	GinkgoHelper()
	do("POST", "/vms/"+vm(name).ID+"/"+action, "<action/>")
}

// remove stops a VM and removes it.
func remove(name string) {
	GinkgoHelper()
	act(name, "stop")
	Eventually(func() string { return vm(name).Status }).WithTimeout(time.Minute).WithTimeout(bootTimeout).Should(Equal("down"))
	do("DELETE", "/vms/"+vm(name).ID, "")
}

// initialization is that of a VM whose only card gets its address by DHCP.
func initialization(name, script string) string {
	return "<initialization><host_name>" + name + "</host_name><custom_script>" + escaped(script) + "</custom_script>" + dhcp + "</initialization>"
}

const dhcp = "<nic_configurations><nic_configuration><name>eth0</name><on_boot>true</on_boot>" +
	"<boot_protocol>dhcp</boot_protocol></nic_configuration></nic_configurations>"

func escaped(text string) string {
	var out bytes.Buffer
	Expect(xml.EscapeText(&out, []byte(text))).To(Succeed())
	return out.String()
}

// vm is the VM as the engine knows it; empty if it does not.
func vm(name string) ovirtsim.VM {
	for _, vm := range server.VMs() {
		if vm.Name == name {
			return vm
		}
	}
	return ovirtsim.VM{}
}

// inside runs a command in a VM's host.
func inside(ctx context.Context, name string, args ...string) func() (string, error) {
	return func() (string, error) {
		h := guests.Host(vm(name).ID)
		if h == nil {
			return "", fmt.Errorf("%s has no host", name)
		}
		out, err := h.Exec(ctx, args...)
		return strings.TrimSpace(string(out)), err
	}
}

// booted waits until cloud-init is through.
func booted(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(inside(ctx, name, host.CloudInitStatus...)).WithTimeout(bootTimeout).Should(Equal("status: done"))
}

// address fails until the engine reports the VM's address.
func address(name string) func() error {
	return func() error {
		addresses := vm(name).Addresses
		if len(addresses) == 0 {
			return fmt.Errorf("%s has no address", name)
		}
		_, err := netip.ParseAddr(addresses[0])
		return err
	}
}
