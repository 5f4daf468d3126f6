package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// Formats of bootstrap data.
const (
	CloudConfig = "cloud-config"
	Ignition    = "ignition"
)

// initialization returns the configuration for the first boot of the VM.
func initialization(m *zvirtv1.NovaZVirtMachine, l hypervisor.CreateOptions, at Placement) (*ovirt.Initialization, error) {
	out := &ovirt.Initialization{HostName: m.Name, NetworkProtocol: "openstack_metadata", NICConfigurations: &ovirt.NICConfigurations{}}
	var err error
	switch cmp.Or(l.Format, CloudConfig) {
	case CloudConfig:
		out.CustomScript, err = ovirt.CloudConfig(l.UserData)
	case Ignition:
		out.CustomScript, err = ovirt.Ignition(l.UserData)
	default:
		err = fmt.Errorf("its format %q is neither %s nor %s", l.Format, CloudConfig, Ignition)
	}
	if err != nil {
		return nil, kit.InvalidSpec("the bootstrap data cannot be used: %w", err)
	}
	for i := range at.Interfaces {
		in := at.Interfaces[i]
		nic, err := nicConfiguration(i, &in, l.Pooled(i))
		if err != nil {
			return nil, err
		}
		out.NICConfigurations.NICs = append(out.NICConfigurations.NICs, nic)
		out.DNSServers = cmp.Or(out.DNSServers, strings.Join(in.Nameservers, " "))
		out.DNSSearch = cmp.Or(out.DNSSearch, strings.Join(in.SearchDomains, " "))
	}
	return out, nil
}

// nicConfiguration returns the network configuration of an interface in the
// guest.
func nicConfiguration(i int, in *zvirtv1.NovaZVirtInterface, pooled []hypervisor.Address) (ovirt.NICConfiguration, error) {
	nic := ovirt.NICConfiguration{Name: cmp.Or(in.DeviceName, "eth"+strconv.Itoa(i)), OnBoot: true, BootProtocol: "none", IPv6Protocol: "none"}
	static, err := kit.StaticAddresses(pooled, in.Addresses, i)
	if err != nil {
		return nic, err
	}
	for _, a := range static {
		to, protocol, gateway := &nic.IP, &nic.BootProtocol, in.Gateway4
		ip := &ovirt.IP{Address: a.Prefix.Addr().String(), Version: "v4"}
		if a.Prefix.Addr().Is4() {
			ip.Netmask = netmask(a.Prefix.Bits())
		} else {
			to, protocol, gateway = &nic.IPv6, &nic.IPv6Protocol, in.Gateway6
			ip.Netmask, ip.Version = strconv.Itoa(a.Prefix.Bits()), "v6"
		}
		if *to != nil {
			return nic, kit.InvalidSpec("network.interfaces[%d] has more than one address of an IP family, and the engine supports only one", i)
		}
		if a.Gateway.IsValid() {
			gateway = cmp.Or(gateway, a.Gateway.String())
		}
		ip.Gateway = gateway
		*to, *protocol = ip, "static"
	}
	for _, dhcp := range []struct {
		wanted   bool
		protocol *string
	}{{in.UsesDHCP4(), &nic.BootProtocol}, {in.UsesDHCP6(), &nic.IPv6Protocol}} {
		if dhcp.wanted && *dhcp.protocol == "static" {
			return nic, kit.InvalidSpec("network.interfaces[%d] has DHCP and a static address of the same IP family, and the engine supports only one of them", i)
		}
		if dhcp.wanted {
			*dhcp.protocol = "dhcp"
		}
	}
	return nic, nil
}

// netmask formats the prefix length of an IPv4 network as a netmask.
func netmask(bits int) string {
	mask := ^uint32(0) << (32 - bits)
	return netip.AddrFrom4([4]byte{byte(mask >> 24), byte(mask >> 16), byte(mask >> 8), byte(mask)}).String()
}
