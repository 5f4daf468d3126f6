package v1beta2

import infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"

// NovaVSphereNetwork has the network interfaces of a VM.
type NovaVSphereNetwork struct {
	// interfaces are the network interfaces of the VM in order. They replace those
	// of the template.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Interfaces []NovaVSphereInterface `json:"interfaces,omitempty"`
}

// NovaVSphereInterfaceType is a type of network adapter.
// +kubebuilder:validation:Enum=Vmxnet3;E1000e;E1000;SRIOV
type NovaVSphereInterfaceType string

// Values of NovaVSphereInterfaceType.
const (
	InterfaceVmxnet3 NovaVSphereInterfaceType = "Vmxnet3"
	InterfaceE1000e  NovaVSphereInterfaceType = "E1000e"
	InterfaceE1000   NovaVSphereInterfaceType = "E1000"
	// InterfaceSRIOV is a virtual function of a network adapter of the host. All
	// memory is reserved then.
	InterfaceSRIOV NovaVSphereInterfaceType = "SRIOV"
)

// NovaVSphereInterface is one network interface.
// +kubebuilder:validation:XValidation:rule="!has(self.dhcp6Overrides) || (has(self.dhcp6) && self.dhcp6)",message="dhcp6Overrides needs dhcp6"
type NovaVSphereInterface struct {
	// network is the name, inventory path or reference of the network: a
	// standard or distributed port group, or an opaque network (NSX). A
	// reference is written as DistributedVirtualPortgroup:dvportgroup-12. If not
	// set, the network of the cluster is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Network string `json:"network,omitempty"`

	// type is the type of network adapter: Vmxnet3, E1000e, E1000 or SRIOV. Defaults
	// to Vmxnet3.
	// +optional
	Type NovaVSphereInterfaceType `json:"type,omitempty"`

	// deviceName is the name of the interface in the guest. If not set, the name is
	// eth and the index of the interface. With Ignition, a single interface that only
	// requests an IPv4 address by DHCP keeps the name that the guest gives it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9_.-]*$`
	DeviceName string `json:"deviceName,omitempty"`

	// dhcp4Overrides select which DHCP options the guest uses for IPv4. If not set, it
	// uses all.
	// +optional
	DHCP4Overrides NovaVSphereDHCPOverrides `json:"dhcp4Overrides,omitempty,omitzero"`

	// dhcp6Overrides select which DHCP options the guest uses for IPv6. If not set, it
	// uses all.
	// +optional
	DHCP6Overrides NovaVSphereDHCPOverrides `json:"dhcp6Overrides,omitempty,omitzero"`

	// mtu is the MTU of the interface in bytes. If not set, the guest chooses it.
	// +optional
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=9216
	MTU int32 `json:"mtu,omitempty"`

	infrav1.InterfaceAddressing `json:",inline"`

	// routes are static routes over this interface. If not set, there are none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Routes []Route `json:"routes,omitempty"`

	// failureDomains are the settings of this interface in failure domains that have
	// a network of their own. If not set, machines have the same settings in all
	// failure domains.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	FailureDomains []NovaVSphereInterfaceFailureDomain `json:"failureDomains,omitempty"`
}

// NovaVSphereInterfaceFailureDomain has the settings of a network interface in one
// failure domain. If addressesFromPools, dhcp4 or dhcp6 is set, these and the
// gateways replace those of the interface. Each other field replaces its own. A name
// server or search domain here takes precedence over one of the failure domain.
type NovaVSphereInterfaceFailureDomain struct {
	infrav1.InterfaceFailureDomain `json:",inline"`

	// routes are static routes over the interface in this failure domain. If not
	// set, those of the interface are used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Routes []Route `json:"routes,omitempty"`
}

// Route is a route over a network interface.
type Route struct {
	// to is the destination network, such as 198.51.100.0/24.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="to must be a network such as 198.51.100.0/24"
	To string `json:"to,omitempty"`

	// via is the IP address of the router.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="via must be an IP address"
	Via string `json:"via,omitempty"`

	// metric is the metric of the route. The route with the lower metric is
	// preferred. If not set, the node chooses it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Metric int32 `json:"metric,omitempty"`
}

// NovaVSphereDHCPOverrides select which DHCP options a guest uses, as in netplan.
// +kubebuilder:validation:MinProperties=1
type NovaVSphereDHCPOverrides struct {
	// hostname is the host name sent to the DHCP server. If not set, it is the
	// host name of the guest.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Hostname string `json:"hostname,omitempty"`

	// routeMetric is the metric of routes from DHCP. If not set, the guest chooses
	// it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	RouteMetric int32 `json:"routeMetric,omitempty"`

	// sendHostname sends the host name to the DHCP server. Defaults to true.
	// +optional
	SendHostname *bool `json:"sendHostname,omitempty"`

	// useDNS uses DNS servers from DHCP. Defaults to true.
	// +optional
	UseDNS *bool `json:"useDNS,omitempty"`

	// useDomains uses search domains from DHCP. If not set, the guest decides.
	// +optional
	UseDomains *bool `json:"useDomains,omitempty"`

	// useHostname uses the host name from DHCP. Defaults to true.
	// +optional
	UseHostname *bool `json:"useHostname,omitempty"`

	// useMTU uses the MTU from DHCP. Defaults to true.
	// +optional
	UseMTU *bool `json:"useMTU,omitempty"`

	// useNTP uses NTP servers from DHCP. Defaults to true.
	// +optional
	UseNTP *bool `json:"useNTP,omitempty"`

	// useRoutes uses routes from DHCP, including the default route. Defaults to
	// true.
	// +optional
	UseRoutes *bool `json:"useRoutes,omitempty"`
}

// GetInterfaces returns the network interfaces, or the default: one interface.
func (n *NovaVSphereNetwork) GetInterfaces() []NovaVSphereInterface {
	if len(n.Interfaces) == 0 {
		return []NovaVSphereInterface{{}}
	}
	return n.Interfaces
}

// In returns the interface with its settings in a failure domain.
func (n *NovaVSphereInterface) In(domain string) NovaVSphereInterface {
	out := *n
	for i := range n.FailureDomains {
		if own := &n.FailureDomains[i]; own.Name == domain {
			out.InterfaceAddressing = n.With(&own.InterfaceFailureDomain)
			if own.Routes != nil {
				out.Routes = own.Routes
			}
		}
	}
	return out
}

// Addressing returns how the machine's interfaces get their addresses in a failure
// domain.
func (m *NovaVSphereMachine) Addressing(domain string) []*infrav1.InterfaceAddressing {
	interfaces := m.Spec.Network.GetInterfaces()
	all := make([]*infrav1.InterfaceAddressing, len(interfaces))
	for i := range interfaces {
		in := interfaces[i].In(domain)
		all[i] = &in.InterfaceAddressing
	}
	return all
}

// MostPools returns the largest number of pools of an interface in any failure domain.
func (m *NovaVSphereMachine) MostPools(nic int) int {
	n := &m.Spec.Network.GetInterfaces()[nic]
	most := len(n.AddressesFromPools)
	for i := range n.FailureDomains {
		most = max(most, len(n.FailureDomains[i].AddressesFromPools))
	}
	return most
}
