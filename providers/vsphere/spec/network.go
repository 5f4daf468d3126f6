package spec

import (
	"crypto/sha256"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// nic is a network interface of a VM, as its virtual NIC and its guest are
// configured.
type nic struct {
	vspherev1.NovaVSphereInterface
	// name is its name in the guest, which finds the interface by mac.
	name, mac string
	// poolAddresses are the addresses from IP pools.
	poolAddresses []hypervisor.Address
}

// NewNICs returns the network interfaces of the VM with the given instance
// UUID.
func NewNICs(id uuid.UUID, interfaces []vspherev1.NovaVSphereInterface, pooled [][]hypervisor.Address) ([]nic, error) { //nolint:revive // callers only pass it on
	out := make([]nic, len(interfaces))
	for i, in := range interfaces {
		n := nic{NovaVSphereInterface: in}
		if i < len(pooled) {
			n.poolAddresses = pooled[i]
		}
		if len(n.poolAddresses) < len(in.AddressesFromPools) {
			return nil, hypervisor.Waiting(infrav1.WaitingForAddressPoolReason, "Waiting for addresses of interface %d", i)
		}
		n.name = in.DeviceName
		if n.name == "" {
			n.name = "eth" + strconv.Itoa(i)
		}
		if n.mac = strings.ToLower(in.MACAddress); n.mac == "" {
			n.mac = MACAddress(id, i)
		}
		out[i] = n
	}
	return out, nil
}

// isPlain reports whether an interface only requests an IPv4 address from
// DHCP, as guests without a network configuration do.
func (n *nic) isPlain() bool {
	return n.UsesDHCP4() && !n.UsesDHCP6() && n.MACAddress == "" && n.MTU == 0 && n.DeviceName == "" &&
		len(n.Addresses) == 0 && len(n.poolAddresses) == 0 && len(n.Nameservers) == 0 && len(n.SearchDomains) == 0 && len(n.Routes) == 0 &&
		n.DHCP4Overrides == (vspherev1.NovaVSphereDHCPOverrides{})
}

// MACAddress returns the MAC address of an interface. It is derived from the
// VM's instance UUID, so that the guest's configuration can contain it before
// the VM exists, and a repeated clone gets the same address. It is a locally
// administered address: the range that VMware leaves to users has 22 bits
// only, in which a few thousand addresses collide.
func MACAddress(id uuid.UUID, index int) string {
	sum := sha256.Sum256(append(id[:], byte(index)))
	sum[0] = sum[0]&^1 | 2
	return net.HardwareAddr(sum[:6]).String()
}

// device returns the virtual NIC of an interface.
func (n *nic) device(index int, backing types.BaseVirtualDeviceBackingInfo) types.BaseVirtualDevice {
	of := types.VirtualEthernetCard{
		VirtualDevice: types.VirtualDevice{
			Key: newNICKey - int32(index), Backing: backing,
			Connectable: &types.VirtualDeviceConnectInfo{StartConnected: true, AllowGuestControl: true, Connected: true},
		},
		AddressType: string(types.VirtualEthernetCardMacTypeManual), MacAddress: n.mac,
	}
	switch n.Type {
	case vspherev1.InterfaceE1000e:
		return &types.VirtualE1000e{VirtualEthernetCard: of}
	case vspherev1.InterfaceE1000:
		return &types.VirtualE1000{VirtualEthernetCard: of}
	case vspherev1.InterfaceSRIOV:
		return &types.VirtualSriovEthernetCard{VirtualEthernetCard: of}
	case vspherev1.InterfaceVmxnet3:
	}
	return &types.VirtualVmxnet3{VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: of}}
}

// static returns the addresses of an interface that do not come from DHCP,
// each with the prefix length of its network.
func (n *nic) static() []string {
	out := append([]string(nil), n.Addresses...)
	for _, a := range n.poolAddresses {
		out = append(out, a.Prefix.String())
	}
	return out
}

// gateway returns the default gateway of an address family; empty if there is
// none.
func (n *nic) gateway(v6 bool) string {
	own := n.Gateway4
	if v6 {
		own = n.Gateway6
	}
	if own != "" {
		return own
	}
	for _, a := range n.poolAddresses {
		if a.Gateway.IsValid() && a.Gateway.Is6() == v6 {
			return a.Gateway.String()
		}
	}
	return ""
}

// networkConfig returns the network configuration for cloud-init, in version
// 2.
//
// Each interface is matched by its MAC address and gets a name: a guest may
// find its NICs in any order, and renderers other than networkd's cannot match
// names by a pattern. The entry's key is the name too, because cloud-init's
// networkd renderer takes the key for the name.
func networkConfig(all []nic) map[string]any {
	ethernets := map[string]any{}
	for i := range all {
		ethernets[all[i].name] = all[i].ethernet()
	}
	return map[string]any{"version": 2, "ethernets": ethernets}
}

// ethernet returns the entry of one interface.
func (n *nic) ethernet() map[string]any {
	e := map[string]any{
		"match":    map[string]any{"macaddress": n.mac},
		"set-name": n.name,
		"dhcp4":    n.UsesDHCP4(),
		"dhcp6":    n.UsesDHCP6(),
	}
	if n.MTU != 0 {
		e["mtu"] = n.MTU
	}
	if addresses := n.static(); len(addresses) > 0 {
		e["addresses"] = addresses
	}
	// The gateways are not set as routes: cloud-init passes routes to a program
	// that guests with ifupdown may not have, and it converts ::/0 to a network
	// of 64 bits.
	for key, v6 := range map[string]bool{"gateway4": false, "gateway6": true} {
		if via := n.gateway(v6); via != "" {
			e[key] = via
		}
	}
	if routes := n.routes(); len(routes) > 0 {
		e["routes"] = routes
	}
	resolver := map[string]any{}
	if len(n.Nameservers) > 0 {
		resolver["addresses"] = n.Nameservers
	}
	if len(n.SearchDomains) > 0 {
		resolver["search"] = n.SearchDomains
	}
	if len(resolver) > 0 {
		e["nameservers"] = resolver
	}
	for key, overrides := range map[string]vspherev1.NovaVSphereDHCPOverrides{
		"dhcp4-overrides": n.DHCP4Overrides, "dhcp6-overrides": n.DHCP6Overrides,
	} {
		if o := overridden(overrides); len(o) > 0 {
			e[key] = o
		}
	}
	return e
}

// routes returns the routes of an interface, except for the default routes.
func (n *nic) routes() []map[string]any {
	var out []map[string]any
	for _, r := range n.Routes {
		route := map[string]any{"to": r.To, "via": r.Via}
		if r.Metric != 0 {
			route["metric"] = r.Metric
		}
		out = append(out, route)
	}
	return out
}

func overridden(o vspherev1.NovaVSphereDHCPOverrides) map[string]any {
	out := map[string]any{}
	if o.Hostname != "" {
		out["hostname"] = o.Hostname
	}
	if o.RouteMetric != 0 {
		out["route-metric"] = o.RouteMetric
	}
	for key, value := range map[string]*bool{
		"send-hostname": o.SendHostname, "use-dns": o.UseDNS, "use-domains": o.UseDomains, "use-hostname": o.UseHostname,
		"use-mtu": o.UseMTU, "use-ntp": o.UseNTP, "use-routes": o.UseRoutes,
	} {
		if value != nil {
			out[key] = *value
		}
	}
	return out
}

// kernelArguments returns the network configuration for a guest that Ignition
// configures: the guest needs the network before it has read any file, and
// Afterburn passes these arguments to its initial RAM disk. If empty, the
// guest uses DHCP.
func kernelArguments(host string, all []nic) (string, error) {
	if len(all) == 1 && all[0].isPlain() {
		return "", nil
	}
	var out []string
	for i := range all {
		args, err := all[i].kernelArguments(host)
		if err != nil {
			return "", err
		}
		out = append(out, args...)
	}
	return strings.Join(out, " "), nil
}

func (n *nic) kernelArguments(host string) ([]string, error) {
	if len(n.SearchDomains) > 0 || n.DHCP4Overrides != (vspherev1.NovaVSphereDHCPOverrides{}) || n.DHCP6Overrides != (vspherev1.NovaVSphereDHCPOverrides{}) {
		return nil, kit.InvalidSpec("searchDomains, dhcp4Overrides and dhcp6Overrides cannot be configured on a machine that Ignition sets up")
	}
	out := []string{"ifname=" + n.name + ":" + n.mac}
	mtu := ""
	if n.MTU != 0 {
		mtu = ":" + strconv.Itoa(int(n.MTU))
	}
	if n.UsesDHCP4() {
		out = append(out, "ip="+n.name+":dhcp"+mtu)
	}
	if n.UsesDHCP6() {
		out = append(out, "ip="+n.name+":dhcp6"+mtu)
	}
	for _, address := range n.static() {
		ip, network, err := net.ParseCIDR(address)
		if err != nil {
			return nil, kit.InvalidSpec("the address %q cannot be read: %w", address, err)
		}
		bits, _ := network.Mask.Size()
		v6 := ip.To4() == nil
		out = append(out, fmt.Sprintf("ip=%s::%s:%d:%s:%s:none%s", bracketed(ip.String()), bracketed(n.gateway(v6)), bits, host, n.name, mtu))
	}
	if len(out) == 1 {
		out = append(out, "ip="+n.name+":off")
	}
	for _, r := range n.Routes {
		if r.Metric != 0 {
			return nil, kit.InvalidSpec("the metric of a route cannot be configured on a machine that Ignition sets up")
		}
		out = append(out, "rd.route="+bracketed(r.To)+":"+bracketed(r.Via)+":"+n.name)
	}
	for _, server := range n.Nameservers {
		out = append(out, "nameserver="+bracketed(server))
	}
	return out, nil
}

// bracketed adds brackets to an IPv6 address, so that its colons are not read
// as separators of the argument.
func bracketed(text string) string {
	if !strings.Contains(text, ":") {
		return text
	}
	if address, bits, ok := strings.Cut(text, "/"); ok {
		return "[" + address + "]/" + bits
	}
	return "[" + text + "]"
}
