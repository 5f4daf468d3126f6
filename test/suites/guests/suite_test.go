package guests_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

const (
	bed         = "guests-suite"
	name        = "guest-1"
	bootTimeout = 3 * time.Minute
)

var (
	server *vcenter.Server
	guests *vcenter.HostGuests
	client *vim25.Client
)

func TestGuests(t *testing.T) {
	RegisterFailHandler(Fail)
	// Commands on a host that is booting compete with its boot for processor time.
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Guests")
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

	guests = vcenter.NewHostGuests(&host.Runner{Bed: bed, Dir: dir + "/disks", Assets: assets})
	server, err = vcenter.Start(context.WithoutCancel(ctx), vcenter.Options{
		Guests: guests,
		Delays: map[string]time.Duration{"CloneVM_Task": 10 * time.Millisecond, "*": 10 * time.Millisecond},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Stop)

	connection := soap.NewClient(server.URL(), false)
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(server.CABundle)).To(BeTrue())
	connection.DefaultTransport().TLSClientConfig.RootCAs = roots
	client, err = vim25.NewClient(ctx, connection)
	Expect(err).NotTo(HaveOccurred())
	Expect(session.NewManager(client).Login(ctx, server.Userinfo())).To(Succeed())
})

// The console of a failed host contains the cause.
var _ = JustAfterEach(func() {
	if !CurrentSpecReport().Failed() {
		return
	}
	for _, machine := range server.VMs() {
		h := guests.Host(machine.BIOSUUID)
		if h == nil {
			continue
		}
		if console, err := os.ReadFile(h.ConsoleLog()); err == nil {
			AddReportEntry("console of "+machine.Name, string(console))
		}
	}
})

// clone creates a VM with user data and powers it on. Its NIC is matched by name, because the MAC
// address of a clone is not known beforehand. The pattern is set in both places because
// cloud-init's networkd renderer uses the name of the entry as the name of the NIC and reads no
// other field.
func clone(ctx context.Context) *object.VirtualMachine {
	finder := find.NewFinder(client)
	template, err := finder.VirtualMachine(ctx, "/DC0/vm/"+vcenter.DefaultTemplate)
	Expect(err).NotTo(HaveOccurred())
	pool, err := finder.ResourcePool(ctx, "/DC0/host/DC0_C0/Resources")
	Expect(err).NotTo(HaveOccurred())
	folder, err := finder.Folder(ctx, "/DC0/vm/"+vcenter.DefaultFolder)
	Expect(err).NotTo(HaveOccurred())
	task, err := template.Clone(ctx, folder, name, types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: types.NewReference(pool.Reference())},
		PowerOn:  true,
		Config: &types.VirtualMachineConfigSpec{ExtraConfig: append(
			encoded("guestinfo.userdata", "#cloud-config\nwrite_files:\n- {path: /etc/greeting, content: hello}\n"),
			encoded("guestinfo.metadata", fmt.Sprintf("instance-id: %[1]s\nlocal-hostname: %[1]s\nwait-on-network: {ipv4: true}\n"+
				"network:\n  version: 2\n  ethernets:\n    'e*':\n      match: {name: 'e*'}\n      dhcp4: true\n", name))...,
		)},
	})
	Expect(err).NotTo(HaveOccurred())
	info, err := task.WaitForResult(ctx)
	Expect(err).NotTo(HaveOccurred())
	return object.NewVirtualMachine(client, info.Result.(types.ManagedObjectReference))
}

// encoded is a setting as cloud-init takes it over VMware's channel.
func encoded(key, value string) []types.BaseOptionValue {
	return []types.BaseOptionValue{
		&types.OptionValue{Key: key, Value: base64.StdEncoding.EncodeToString([]byte(value))},
		&types.OptionValue{Key: key + ".encoding", Value: "base64"},
	}
}

func done(ctx context.Context, task *object.Task, err error) {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	Expect(task.Wait(ctx)).To(Succeed())
}

// vm is the VM as vCenter knows it; empty if it does not.
func vm() vcenter.VM {
	for _, vm := range server.VMs() {
		if vm.Name == name {
			return vm
		}
	}
	return vcenter.VM{}
}

// inside runs a command in the VM's host.
func inside(ctx context.Context, args ...string) func() (string, error) {
	return func() (string, error) {
		h := guests.Host(vm().BIOSUUID)
		if h == nil {
			return "", fmt.Errorf("%s has no host", name)
		}
		out, err := h.Exec(ctx, args...)
		return strings.TrimSpace(string(out)), err
	}
}

// address fails until vCenter reports the VM's address.
func address() error {
	_, err := netip.ParseAddr(vm().IPAddress)
	return err
}
