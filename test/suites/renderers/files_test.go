package renderers_test

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

//go:embed render.py
var renderScript string

// wanted are lines of a renderer's files that configure the network as the machine
// specifies, by the golden files of the vSphere driver and by the drives of an engine. They are
// those of cloud-init 25.1.4 and netplan 1.1.2 of Debian 13.
var wanted = map[string]map[string][]string{
	"network-dhcp": {
		"eni":             {"auto eth0", "iface eth0 inet dhcp"},
		"network-manager": {"mac-address=66:BB:FD:8F:40:01", "method=auto"},
		"netplan":         {"PermanentMACAddress=66:bb:fd:8f:40:01", "Name=eth0", "DHCP=ipv4"},
		"networkd":        {"MACAddress=66:bb:fd:8f:40:01", "DHCP=ipv4"},
		"sysconfig":       {"HWADDR=66:bb:fd:8f:40:01", "BOOTPROTO=dhcp", "ONBOOT=yes"},
	},
	"network-resolvers": {
		// The name server is lost: this is no line of ifupdown.
		"eni":             {"dns {'nameservers': ['192.0.2.2'], 'search': []}"},
		"network-manager": {"dns=192.0.2.2;"},
		"netplan":         {"DNS=192.0.2.2"},
		"networkd":        {"DNS=192.0.2.2"},
		"sysconfig":       {"nameserver 192.0.2.2"},
	},
	"network-two": {
		"eni":             {"auto eth0", "auto eth1", "iface eth1 inet dhcp"},
		"network-manager": {"mac-address=66:BB:FD:8F:40:01", "mac-address=2A:EC:AE:04:48:63"},
		"netplan":         {"PermanentMACAddress=66:bb:fd:8f:40:01", "PermanentMACAddress=2a:ec:ae:04:48:63", "Name=eth1"},
		"networkd":        {"MACAddress=66:bb:fd:8f:40:01", "MACAddress=2a:ec:ae:04:48:63"},
		"sysconfig":       {"HWADDR=66:bb:fd:8f:40:01", "HWADDR=2a:ec:ae:04:48:63"},
	},
	"network-dual": {
		"eni":             {"iface eth0 inet dhcp", "iface eth0 inet6 dhcp", "mtu 9000"},
		"network-manager": {"mtu=9000", "[ipv6]"},
		"netplan":         {"MTUBytes=9000", "DHCP=yes"},
		"networkd":        {"MTUBytes=9000", "DHCP=yes"},
		"sysconfig":       {"MTU=9000", "BOOTPROTO=dhcp", "DHCPV6C=yes"},
	},
	"network-static": {
		"eni": {
			"address 192.0.2.10/24", "gateway 192.0.2.1", "address 2001:db8::10/64", "gateway 2001:db8::1", "dns-nameservers 192.0.2.2 2001:db8::2",
			"post-up route add -net 198.51.100.0/24 gw 192.0.2.3 || true", "post-up route add -A inet6 2001:db8:1::/48 gw 2001:db8::3 || true",
		},
		"network-manager": {
			"address1=192.0.2.10/24", "gateway=192.0.2.1", "address1=2001:db8::10/64", "gateway=2001:db8::1", "dns=192.0.2.2;", "dns=2001:db8::2;",
			"route1=198.51.100.0/24,192.0.2.3", "route1=2001:db8:1::/48,2001:db8::3",
		},
		"netplan": {
			"Name=lan", "Address=192.0.2.10/24", "Gateway=192.0.2.1", "Address=2001:db8::10/64", "Gateway=2001:db8::1", "DNS=192.0.2.2", "DNS=2001:db8::2",
			"Destination=198.51.100.0/24", "Gateway=192.0.2.3", "Destination=2001:db8:1::/48", "Gateway=2001:db8::3",
		},
		"networkd": {
			"Address=192.0.2.10/24", "Gateway=192.0.2.1", "Address=2001:db8::10/64", "Gateway=2001:db8::1", "DNS=192.0.2.2 2001:db8::2",
			"Destination=198.51.100.0/24", "Gateway=192.0.2.3", "Destination=2001:db8:1::/48", "Gateway=2001:db8::3",
		},
		"sysconfig": {
			"IPADDR=192.0.2.10", "NETMASK=255.255.255.0", "GATEWAY=192.0.2.1", "IPV6ADDR=2001:db8::10/64", "IPV6_DEFAULTGW=2001:db8::1",
			"DNS1=192.0.2.2", "DNS2=2001:db8::2", "ADDRESS0=198.51.100.0", "GATEWAY0=192.0.2.3", "2001:db8:1::/48 via 2001:db8::3  dev lan",
		},
	},
	"network-pools": {
		"eni":             {"gateway 192.0.2.254", "gateway 2001:db8::1"},
		"network-manager": {"gateway=192.0.2.254", "gateway=2001:db8::1"},
		"netplan":         {"Gateway=192.0.2.254", "Gateway=2001:db8::1"},
		"networkd":        {"Gateway=192.0.2.254", "Gateway=2001:db8::1"},
		"sysconfig":       {"GATEWAY=192.0.2.254", "IPV6_DEFAULTGW=2001:db8::1"},
	},
	"network-search": {
		"eni":             {"dns-search example.com example.org"},
		"network-manager": {"dns-search=example.com;example.org;"},
		"netplan":         {"Domains=example.com example.org"},
		"networkd":        {"Domains=example.com example.org"},
		"sysconfig":       {`DOMAIN="example.com example.org"`},
	},
	"network-overrides": {
		"eni":       {"metric 50"},
		"networkd":  {"RouteMetric=50", "UseDNS=False", "Hostname=other", "UseRoutes=True"},
		"sysconfig": {"IPV4_ROUTE_METRIC=50"},
		// The whole interface is lost.
		"netplan": {"ERROR: eth0: networkd requires that use-domains has the same value in both dhcp4_overrides and dhcp6_overrides"},
	},
	"network-metric": {
		"eni":             {"post-up route add -net 198.51.100.0/24 gw 192.0.2.3 metric 7 || true"},
		"network-manager": {"route1=198.51.100.0/24,192.0.2.3,7"},
		"netplan":         {"Destination=198.51.100.0/24", "Gateway=192.0.2.3", "Metric=7"},
		"networkd":        {"Destination=198.51.100.0/24", "Gateway=192.0.2.3", "Metric=7"},
		"sysconfig":       {"ADDRESS0=198.51.100.0", "GATEWAY0=192.0.2.3", "METRIC0=7"},
	},
	"engine-dhcp": {
		"eni":             {"auto enp1s0", "iface enp1s0 inet dhcp"},
		"network-manager": {"interface-name=enp1s0", "method=auto"},
		"netplan":         {"Name=enp1s0", "DHCP=ipv4"},
		"networkd":        {"Name=enp1s0", "DHCP=ipv4"},
		"sysconfig":       {"DEVICE=enp1s0", "BOOTPROTO=dhcp", "ONBOOT=yes"},
	},
	"engine-dual": {
		"eni":             {"iface enp1s0 inet dhcp", "iface enp1s0 inet6 dhcp"},
		"network-manager": {"interface-name=enp1s0", "[ipv6]"},
		"netplan":         {"Name=enp1s0", "DHCP=yes"},
		"networkd":        {"Name=enp1s0", "DHCP=yes"},
		"sysconfig":       {"DEVICE=enp1s0", "BOOTPROTO=dhcp", "DHCPV6C=yes"},
	},
	"engine-static": {
		"eni": {
			"address 10.78.0.60/24", "gateway 10.78.0.1", "address fd78::60/64", "gateway fd78::1", "dns-nameservers 10.78.0.53 fd78::53",
			"dns-search corp.example example",
		},
		"network-manager": {
			"address1=10.78.0.60/24", "gateway=10.78.0.1", "address1=fd78::60/64", "gateway=fd78::1", "dns=10.78.0.53;10.78.0.53;",
			"dns=fd78::53;fd78::53;", "dns-search=corp.example;example;corp.example;example;",
		},
		"netplan": {
			"Address=10.78.0.60/24", "Gateway=10.78.0.1", "Address=fd78::60/64", "Gateway=fd78::1", "DNS=10.78.0.53", "DNS=fd78::53",
			"Domains=corp.example example",
		},
		"networkd": {
			"Address=10.78.0.60/24", "Gateway=10.78.0.1", "Address=fd78::60/64", "Gateway=fd78::1", "DNS=10.78.0.53 fd78::53", "Domains=corp.example example",
		},
		"sysconfig": {
			"IPADDR=10.78.0.60", "NETMASK=255.255.255.0", "GATEWAY=10.78.0.1", "IPV6ADDR=fd78::60/64", "IPV6_DEFAULTGW=fd78::1",
			"DNS1=10.78.0.53", "DNS2=fd78::53", `DOMAIN="corp.example example"`,
		},
	},
	"engine-two": {
		"eni":             {"auto enp1s0", "address 192.0.2.10/24", "gateway 192.0.2.1", "iface enp2s0 inet dhcp"},
		"network-manager": {"interface-name=enp1s0", "address1=192.0.2.10/24", "interface-name=enp2s0", "method=auto"},
		"netplan":         {"Name=enp1s0", "Address=192.0.2.10/24", "Gateway=192.0.2.1", "Name=enp2s0", "DHCP=ipv4"},
		"networkd":        {"Name=enp1s0", "Address=192.0.2.10/24", "Gateway=192.0.2.1", "Name=enp2s0", "DHCP=ipv4"},
		"sysconfig":       {"DEVICE=enp1s0", "IPADDR=192.0.2.10", "GATEWAY=192.0.2.1", "DEVICE=enp2s0", "BOOTPROTO=dhcp"},
	},
}

// formerly are the lines instead of them of cloud-init 22.4.2 and netplan 0.106 of Debian 12.
var formerly = map[string]map[string][]string{
	"network-resolvers": {
		"eni":             {"dns-nameservers 192.0.2.2"},
		"network-manager": {"method=auto"},
	},
	"network-static": {
		// The route is in the section of the other IP family.
		"network-manager": {"address1=192.0.2.10/24", "address1=2001:db8::10/64", "route1=198.51.100.0/24,192.0.2.3", "route2=2001:db8:1::/48,2001:db8::3"},
	},
	"network-overrides": {"sysconfig": {"METRIC=50"}},
	"network-metric": {
		"eni":             {"post-up route add -net 198.51.100.0/24 gw 192.0.2.3 || true"},
		"network-manager": {"route1=198.51.100.0/24,192.0.2.3"},
		"networkd":        {"Destination=198.51.100.0/24", "Gateway=192.0.2.3"},
		"sysconfig":       {"ADDRESS0=198.51.100.0", "GATEWAY0=192.0.2.3"},
	},
	"engine-static": {
		"network-manager": {"address1=10.78.0.60/24", "address1=fd78::60/64", "dns=10.78.0.53;10.78.0.53;", "dns=fd78::53;fd78::53;", "dns-search=corp.example;example;"},
		"netplan":         {"Address=10.78.0.60/24", "Address=fd78::60/64", "DNS=10.78.0.53", "DNS=fd78::53", "Domains=corp.example example corp.example example"},
	},
}

// wantedLines are the lines of a configuration by a renderer.
func wantedLines(name, renderer string) []string {
	if lines, found := formerly[name][renderer]; found && host.System() == "debian-12" {
		return lines
	}
	return wanted[name][renderer]
}

var _ = Describe("The files of a guest", func() {
	It("contain all requested settings", func(ctx context.Context) {
		configs := engineConfigs(ctx)
		maps.Copy(configs, goldenConfigs())
		for name := range wanted {
			Expect(configs).To(HaveKey(name))
		}
		for name, renderers := range render(ctx, configs) {
			for renderer, text := range renderers {
				lines := strings.Split(text, "\n")
				for i := range lines {
					lines[i] = strings.TrimSpace(lines[i])
				}
				for _, line := range wantedLines(name, renderer) {
					Expect(lines).To(ContainElement(line), "%s by %s:\n%s", name, renderer, text)
				}
				// The configuration that cloud-init renders for a route to ::/0.
				Expect(text).NotTo(ContainSubstring("::/64 "), "%s by %s", name, renderer)
				Expect(text).NotTo(ContainSubstring("route add default"), "%s by %s", name, renderer)
			}
		}
	})
})

// goldenConfigs returns the golden files of the vSphere driver.
func goldenConfigs() map[string]config {
	GinkgoHelper()
	files, err := filepath.Glob("../../../providers/vsphere/spec/testdata/network-*.json")
	Expect(err).NotTo(HaveOccurred())
	configs := map[string]config{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		configs[strings.TrimSuffix(filepath.Base(file), ".json")] = config{Network: data}
	}
	return configs
}

// render renders network configurations in the hosts' Debian with netplan.
func render(ctx context.Context, configs map[string]config) map[string]map[string]string {
	GinkgoHelper()
	input, err := json.Marshal(configs)
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "/bin/sh", "-euc",
		`mount -t overlay -o "lowerdir=$2:$1" overlay "$1"; mount -t tmpfs tmpfs "$1/tmp"; exec chroot "$1" /usr/bin/python3 -B -c "$3"`,
		"render.sh", assets.Debian, assets.RendererLayer("netplan"), renderScript)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), GinkgoWriter
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred())
	var rendered map[string]map[string]string
	Expect(json.Unmarshal(out, &rendered)).To(Succeed())
	return rendered
}
