package renderers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	hypervisortest "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// engineInterface is an interface with its name in the guest, by which the engine
// configures it.
func engineInterface(name string, addressing infrav1.InterfaceAddressing) zvirtv1.NovaZVirtInterface {
	return zvirtv1.NovaZVirtInterface{DeviceName: name, InterfaceAddressing: addressing}
}

// engineStatic is an interface of both families. Nothing answers at its gateways:
// guests only need to have the routes.
func engineStatic(last int) infrav1.InterfaceAddressing {
	return infrav1.InterfaceAddressing{
		Addresses: []string{fmt.Sprintf("10.78.0.%d/24", last), fmt.Sprintf("fd78::%d/64", last)}, Gateway4: "10.78.0.1", Gateway6: "fd78::1",
		Nameservers: []string{"10.78.0.53", "fd78::53"}, SearchDomains: []string{"corp.example", "example"},
	}
}

// drives are the machines whose drives are rendered.
var drives = map[string][]zvirtv1.NovaZVirtInterface{
	"engine-dhcp":   {engineInterface("enp1s0", infrav1.InterfaceAddressing{})},
	"engine-dual":   {engineInterface("enp1s0", infrav1.InterfaceAddressing{DHCP4: ptr.To(true), DHCP6: ptr.To(true)})},
	"engine-static": {engineInterface("enp1s0", engineStatic(60))},
	"engine-two": {
		engineInterface("enp1s0", infrav1.InterfaceAddressing{Addresses: []string{"192.0.2.10/24"}, Gateway4: "192.0.2.1"}),
		engineInterface("enp2s0", infrav1.InterfaceAddressing{DHCP4: ptr.To(true)}),
	},
}

// engineConfigs returns the network data on the drives that an engine makes for the
// machines of the driver.
func engineConfigs(ctx context.Context) map[string]config {
	GinkgoHelper()
	server, connector := engine(ctx, nil, ovirtsim.TemplateSpec{Name: "node", DiskGiB: 20})
	defer server.Stop()
	defer connector.Close()
	configs := map[string]config{}
	var machines []*zvirtv1.NovaZVirtMachine
	for name, interfaces := range drives {
		machines = append(machines, engineMachine(name, "node", interfaces))
	}
	createOnEngine(ctx, connector, machines...)
	for name := range drives {
		data := engineVM(server, name).Drive["openstack/latest/network_data.json"]
		Expect(data).NotTo(BeEmpty(), name)
		configs[name] = config{OpenStack: data}
	}
	return configs
}

// engine starts an engine and a connector with a cluster on it.
func engine(ctx context.Context, guests ovirtsim.Guests, templates ...ovirtsim.TemplateSpec) (*ovirtsim.Server, *zvirt.Connector) {
	GinkgoHelper()
	o := ovirtsim.Options{Guests: guests, Inventory: ovirtsim.Inventory{Templates: templates}}
	if guests != nil {
		o.Timings = map[string]time.Duration{ovirtsim.TimePoweringUp: time.Hour} // no VM is up before its host reports an address
	}
	server, err := ovirtsim.Start(context.WithoutCancel(ctx), o)
	Expect(err).NotTo(HaveOccurred())
	scheme := runtime.NewScheme()
	Expect(corev1.AddToScheme(scheme)).To(Succeed())
	Expect(zvirtv1.AddToScheme(scheme)).To(Succeed())
	Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	return server, zvirt.NewConnector(fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: bed},
			Data:       map[string][]byte{"username": []byte(ovirtsim.DefaultUsername), "password": []byte(ovirtsim.DefaultPassword)},
		},
		&zvirtv1.NovaZVirtCluster{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: bed,
				Labels:      map[string]string{clusterv1.ClusterNameLabel: bed},
				Annotations: map[string]string{infrav1.ClusterIDAnnotation: "0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11"},
			},
			Spec: zvirtv1.NovaZVirtClusterSpec{
				ClusterSpec: infrav1.ClusterSpec{
					Server: strings.TrimSuffix(strings.TrimPrefix(server.URL, "https://"), "/ovirt-engine/api"), TLS: infrav1.Trust{CABundle: server.CABundle},
					IdentityRef: infrav1.IdentityReference{Name: bed}, Network: "ovirtmgmt/ovirtmgmt",
				},
				Placement: zvirtv1.NovaZVirtPlacement{ComputeCluster: "Default", StorageDomain: "data1"},
			},
		},
	).Build(), zvirt.Options{})
}

func engineMachine(name, template string, interfaces []zvirtv1.NovaZVirtInterface) *zvirtv1.NovaZVirtMachine {
	return &zvirtv1.NovaZVirtMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: bed}},
		Spec: zvirtv1.NovaZVirtMachineSpec{
			Template: zvirtv1.NovaZVirtTemplate{Name: template},
			Hardware: zvirtv1.NovaZVirtHardware{CPUs: 2, MemoryMiB: 2048},
			Network:  zvirtv1.NovaZVirtNetwork{Interfaces: interfaces},
		},
	}
}

// createOnEngine creates the VMs of machines, sets them up and starts them.
func createOnEngine(ctx context.Context, connector *zvirt.Connector, machines ...*zvirtv1.NovaZVirtMachine) {
	GinkgoHelper()
	step := func(g Gomega, m *zvirtv1.NovaZVirtMachine) hypervisor.State {
		d, err := connector.Connect(ctx, m)
		g.Expect(err).NotTo(HaveOccurred())
		vm, err := d.Observe(ctx, m)
		g.Expect(err).NotTo(HaveOccurred())
		switch {
		case vm.State == hypervisor.Absent:
			err = d.Create(ctx, m, hypervisor.CreateOptions{
				UserData: []byte("#cloud-config\nwrite_files:\n- {path: /etc/greeting, content: hello}\n"), Format: "cloud-config",
			})
		case vm.State == hypervisor.Stopped && vm.OutOfSync != "":
			err = hypervisortest.Sync(ctx, d, m, false)
		case vm.State == hypervisor.Stopped:
			err = d.Start(ctx, m)
		}
		g.Expect(err).NotTo(HaveOccurred())
		return vm.State
	}
	Eventually(func(g Gomega) (states []hypervisor.State) {
		for _, m := range machines {
			states = append(states, step(g, m))
		}
		return states
	}).WithTimeout(2 * time.Minute).WithPolling(100 * time.Millisecond).Should(HaveEach(hypervisor.Running))
}

func engineVM(server *ovirtsim.Server, name string) ovirtsim.VM {
	for _, vm := range server.VMs() {
		if vm.Name == name {
			return vm
		}
	}
	return ovirtsim.VM{}
}

var _ = describeInFull("A guest of an engine", Ordered, ContinueOnFailure, func() {
	var (
		server    *ovirtsim.Server
		guests    *ovirtsim.HostGuests
		connector *zvirt.Connector
	)

	BeforeAll(func(ctx context.Context) {
		dir := GinkgoT().TempDir()
		Expect(host.Cleanup(ctx, bed, GinkgoWriter)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(host.Cleanup(ctx, bed, GinkgoWriter, dir)).To(Succeed())
		})
		Expect(host.NewNetwork(bed, dir+"/network", GinkgoWriter).Up(ctx)).To(Succeed())
		guests = ovirtsim.NewHostGuests(&host.Runner{Bed: bed, Dir: dir + "/disks", Assets: assets})
		var templates []ovirtsim.TemplateSpec
		for _, renderer := range booted {
			templates = append(templates, ovirtsim.TemplateSpec{Name: renderer, DiskGiB: 20, Renderer: renderer})
		}
		server, connector = engine(ctx, guests, templates...)
		DeferCleanup(server.Stop)
		DeferCleanup(connector.Close)
	})

	DescribeTable("has the network of its machine", func(ctx context.Context, renderer string, last int) {
		name := "on-engine-" + renderer
		// These are the names of the NICs of such hosts.
		m := engineMachine(name, renderer, []zvirtv1.NovaZVirtInterface{
			engineInterface("ens192", engineStatic(last)), engineInterface("ens224", infrav1.InterfaceAddressing{DHCP4: ptr.To(true)}),
		})
		h := func() *host.Host { return guests.Host(engineVM(server, name).ID) }
		whenFailed(func() { tellOf(ctx, h()) })
		createOnEngine(ctx, connector, m)
		Eventually(commandIn(ctx, h, host.CloudInitStatus...)).WithTimeout(bootTimeout).Should(Equal("status: done"))
		has := func(text string, args ...string) {
			GinkgoHelper()
			Eventually(commandIn(ctx, h, args...)).WithTimeout(time.Minute).Should(ContainSubstring(text))
		}
		By("having static addresses on the first NIC and an address of DHCP on the second")
		has(fmt.Sprintf("inet 10.78.0.%d/24", last), "ip", "-o", "-4", "address", "show", "dev", "ens192")
		has(fmt.Sprintf("inet6 fd78::%d/64", last), "ip", "-o", "-6", "address", "show", "dev", "ens192")
		has("inet 10.77.0.", "ip", "-o", "-4", "address", "show", "dev", "ens224")
		By("using the static gateways")
		has("via 10.78.0.1 dev ens192", "ip", "route", "get", "203.0.113.1")
		has("via fd78::1 dev ens192", "ip", "route", "get", "2001:db8::1")
		By("asking the name servers")
		has("nameserver 10.78.0.53", "cat", "/etc/resolv.conf")
		has("corp.example example", "cat", "/etc/resolv.conf")
		By("taking its user data")
		has("DataSourceConfigDrive", "cat", "/run/cloud-init/result.json")
		has("hello", "cat", "/etc/greeting")
		By("having its static address as the first one")
		d, err := connector.Connect(ctx, m)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() (string, error) {
			seen, err := d.Observe(ctx, m)
			if err != nil || len(seen.Addresses) == 0 {
				return "", err
			}
			return seen.Addresses[0].Address, nil
		}).WithTimeout(time.Minute).Should(Equal(fmt.Sprintf("10.78.0.%d", last)))
	},
		Entry("with NetworkManager", "network-manager", 70),
		Entry("with ifupdown", "eni", 71),
		Entry("with networkd", "networkd", 72),
		Entry("with netplan", "netplan", 73),
	)
})

// commandIn runs a command in a host and returns its output.
func commandIn(ctx context.Context, in func() *host.Host, args ...string) func() (string, error) {
	return func() (string, error) {
		h := in()
		if h == nil {
			return "", errors.New("the VM has no host")
		}
		out, err := h.Exec(ctx, args...)
		return strings.TrimSpace(string(out)), err
	}
}

// config is a network configuration in one of the forms that cloud-init reads.
type config struct {
	// Network is in a form of cloud-init's own, OpenStack in that of a drive.
	Network   json.RawMessage `json:"network,omitempty"`
	OpenStack json.RawMessage `json:"openstack,omitempty"`
}
