package renderers_test

import (
	"context"
	"fmt"
	"os"
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
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

const namespace = "default"

// interfaces are two interfaces of a node: a static one, and one on a network with DHCP. The
// gateways of the first one do not exist: guests only need their addresses. last is the last part
// of the addresses.
func interfaces(last int) []vspherev1.NovaVSphereInterface {
	return []vspherev1.NovaVSphereInterface{
		{Network: "VM Network", MTU: 1400, Routes: []vspherev1.Route{{To: "198.51.100.0/24", Via: "10.78.0.3"}}, InterfaceAddressing: infrav1.InterfaceAddressing{
			Addresses: []string{fmt.Sprintf("10.78.0.%d/24", last), fmt.Sprintf("fd78::%d/64", last)}, Gateway4: "10.78.0.1", Gateway6: "fd78::1",
			Nameservers: []string{"10.78.0.53"}, SearchDomains: []string{"corp.example", "example"},
		}},
		{Network: "VM Network", InterfaceAddressing: infrav1.InterfaceAddressing{DHCP4: ptr.To(true)}},
	}
}

var _ = describeInFull("A guest", Ordered, ContinueOnFailure, func() {
	var (
		server    *vcenter.Server
		guests    *vcenter.HostGuests
		connector *vsphere.Connector
	)

	BeforeAll(func(ctx context.Context) {
		dir := GinkgoT().TempDir()
		// A run that was killed left these behind.
		Expect(host.Cleanup(ctx, bed, GinkgoWriter)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(host.Cleanup(ctx, bed, GinkgoWriter, dir)).To(Succeed())
		})
		Expect(host.NewNetwork(bed, dir+"/network", GinkgoWriter).Up(ctx)).To(Succeed())
		guests = vcenter.NewHostGuests(&host.Runner{Bed: bed, Dir: dir + "/disks", Assets: assets})
		var templates []vcenter.Template
		for _, renderer := range booted {
			templates = append(templates, vcenter.Template{Name: renderer, VApp: true, ExtraConfig: map[string]string{vcenter.RendererKey: renderer}})
		}
		var err error
		server, err = vcenter.Start(context.WithoutCancel(ctx), vcenter.Options{
			Guests: guests, Inventory: vcenter.Inventory{Templates: templates},
			Delays: map[string]time.Duration{"CloneVM_Task": 10 * time.Millisecond, "*": 10 * time.Millisecond},
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Stop)
		connector = connect(server)
		DeferCleanup(connector.Close)
	})

	vm := func(name string) vcenter.VM {
		for _, vm := range server.VMs() {
			if vm.Name == name {
				return vm
			}
		}
		return vcenter.VM{}
	}
	// inside runs a command in the host of a VM.
	inside := func(ctx context.Context, name string, args ...string) func() (string, error) {
		return commandIn(ctx, func() *host.Host { return guests.Host(vm(name).BIOSUUID) }, args...)
	}

	DescribeTable("has the network of its machine", func(ctx context.Context, renderer string, last int) {
		name := "by-" + renderer
		m := machine(name, renderer, last)
		whenFailed(func() { tellOf(ctx, guests.Host(vm(name).BIOSUUID)) })
		create(ctx, connector, m)
		Eventually(inside(ctx, name, host.CloudInitStatus...)).WithTimeout(bootTimeout).Should(Equal("status: done"))
		has := func(what string, args ...string) {
			GinkgoHelper()
			Eventually(inside(ctx, name, args...)).WithTimeout(time.Minute).Should(ContainSubstring(what))
		}
		By("calling the cards as they are to be called, by their hardware addresses")
		for i, card := range []string{"eth0", "eth1"} {
			has(vm(name).NICs[i].MAC, "cat", "/sys/class/net/"+card+"/address")
		}
		By("having static addresses on the first and one of DHCP on the second")
		has(fmt.Sprintf("inet 10.78.0.%d/24", last), "ip", "-o", "-4", "address", "show", "dev", "eth0")
		has(fmt.Sprintf("inet6 fd78::%d/64", last), "ip", "-o", "-6", "address", "show", "dev", "eth0")
		has("inet 10.77.0.", "ip", "-o", "-4", "address", "show", "dev", "eth1")
		has("1400", "cat", "/sys/class/net/eth0/mtu")
		By("leaving by the static gateways")
		has("via 10.78.0.1 dev eth0", "ip", "route", "get", "203.0.113.1")
		has("via fd78::1 dev eth0", "ip", "route", "get", "2001:db8::1")
		has("via 10.78.0.3 dev eth0", "ip", "route", "get", "198.51.100.1")
		By("asking the name servers")
		has("nameserver 10.78.0.53", "cat", "/etc/resolv.conf")
		has("corp.example example", "cat", "/etc/resolv.conf")
		By("taking its user data, although the template has the properties of an OVA")
		has("DataSourceVMware", "cat", "/run/cloud-init/result.json")
		has("hello", "cat", "/etc/greeting")
		By("being known by its static address first")
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
		Entry("with NetworkManager", "network-manager", 60),
		Entry("with ifupdown", "eni", 61),
		Entry("with networkd", "networkd", 62),
		// netplan writes that networkd matches NICs by their permanent addresses, which
		// veths do not have: guests of an engine, which match by name, boot with it.
	)
})

// describeInFull describes specs that run only if everything is to run.
func describeInFull(text string, args ...any) bool {
	if everything {
		Describe(text, append([]any{Offset(1)}, args...)...)
	}
	return everything
}

// whenFailed calls f at the end of a spec that failed.
func whenFailed(f func()) {
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			f()
		}
	})
}

// tellOf reports the network settings of a host.
func tellOf(ctx context.Context, h *host.Host) {
	if h == nil {
		return
	}
	if console, err := os.ReadFile(h.ConsoleLog()); err == nil {
		AddReportEntry("console", string(console))
	}
	out, _ := h.Exec(ctx, "sh", "-c", "ip address; ip route; ip -6 route; cat /etc/resolv.conf; "+
		"head -n 99 /etc/network/interfaces /etc/NetworkManager/system-connections/* /run/systemd/network/* /etc/systemd/network/*; systemctl --failed")
	AddReportEntry("network", string(out))
}

// connect returns a connector with a cluster on the server.
func connect(server *vcenter.Server) *vsphere.Connector {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(corev1.AddToScheme(scheme)).To(Succeed())
	Expect(vspherev1.AddToScheme(scheme)).To(Succeed())
	Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	return vsphere.NewConnector(fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: bed},
			Data:       map[string][]byte{"username": []byte(vcenter.DefaultUsername), "password": []byte(vcenter.DefaultPassword)},
		},
		&vspherev1.NovaVSphereCluster{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: bed,
				Labels:      map[string]string{clusterv1.ClusterNameLabel: bed},
				Annotations: map[string]string{infrav1.ClusterIDAnnotation: "0d6d0c70-5b1c-4c0e-9d3c-6d3d4c0f4e11"},
			},
			Spec: vspherev1.NovaVSphereClusterSpec{
				ClusterSpec: infrav1.ClusterSpec{Server: server.Address, TLS: infrav1.Trust{CABundle: string(server.CABundle)}, IdentityRef: infrav1.IdentityReference{Name: bed}},
				Placement: vspherev1.NovaVSpherePlacement{
					Datacenter: "DC0", ResourcePool: "DC0_C0_RP1", Folder: vcenter.DefaultFolder, Datastore: "LocalDS_0",
				},
			},
		},
	).Build(), vsphere.Options{})
}

// machine is one of two interfaces, from a template.
func machine(name, template string, last int) *vspherev1.NovaVSphereMachine {
	return &vspherev1.NovaVSphereMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: bed}},
		Spec: vspherev1.NovaVSphereMachineSpec{
			Template: vspherev1.NovaVSphereTemplate{Name: template},
			Hardware: vspherev1.NovaVSphereHardware{CPUs: 2, MemoryMiB: 2048},
			Network:  vspherev1.NovaVSphereNetwork{Interfaces: interfaces(last)},
		},
	}
}

// create repeats the creation of a machine's VM until it runs.
func create(ctx context.Context, connector *vsphere.Connector, m *vspherev1.NovaVSphereMachine) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		d, err := connector.Connect(ctx, m)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(d.Create(ctx, m, hypervisor.CreateOptions{
			UserData: []byte("#cloud-config\nwrite_files:\n- {path: /etc/greeting, content: hello}\n"), Format: "cloud-config",
		})).To(Succeed())
		vm, err := d.Observe(ctx, m)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(vm.State).To(Equal(hypervisor.Running))
	}).WithTimeout(time.Minute).Should(Succeed())
}
