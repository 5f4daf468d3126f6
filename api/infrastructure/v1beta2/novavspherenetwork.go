package v1beta2

// NovaVSphereNetwork is what a VM is connected to.
type NovaVSphereNetwork struct {
	// interfaces are the VM's network interfaces in order; they replace the
	// template's.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Interfaces []NovaVSphereInterface `json:"interfaces,omitempty"`
}

// NovaVSphereInterfaceType is a kind of network card.
// +kubebuilder:validation:Enum=Vmxnet3;E1000e;E1000;SRIOV
type NovaVSphereInterfaceType string

// Values of NovaVSphereInterfaceType.
const (
	InterfaceVmxnet3 NovaVSphereInterfaceType = "Vmxnet3"
	InterfaceE1000e  NovaVSphereInterfaceType = "E1000e"
	InterfaceE1000   NovaVSphereInterfaceType = "E1000"
	// InterfaceSRIOV is a part of a card of the host. All memory is reserved
	// then.
	InterfaceSRIOV NovaVSphereInterfaceType = "SRIOV"
)

// NovaVSphereInterface is one network interface.
// +kubebuilder:validation:XValidation:rule="!has(self.dhcp6Overrides) || (has(self.dhcp6) && self.dhcp6)",message="dhcp6Overrides needs dhcp6"
type NovaVSphereInterface struct {
	// network is the name, inventory path or reference of the network: a
	// standard or distributed port group, or an opaque network (NSX). A
	// reference is written as DistributedVirtualPortgroup:dvportgroup-12.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Network string `json:"network,omitempty"`

	// type is the kind of network card. Empty means Vmxnet3.
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

	// dhcp4Overrides say which of DHCP's answers for IPv4 the guest takes.
	// Empty takes all.
	// +optional
	DHCP4Overrides NovaVSphereDHCPOverrides `json:"dhcp4Overrides,omitempty,omitzero"`

	// dhcp6Overrides say which of DHCP's answers for IPv6 the guest takes.
	// Empty takes all.
	// +optional
	DHCP6Overrides NovaVSphereDHCPOverrides `json:"dhcp6Overrides,omitempty,omitzero"`

	InterfaceAddressing `json:",inline"`
}

// NovaVSphereDHCPOverrides say which of DHCP's answers a guest takes, as
// netplan has it.
// +kubebuilder:validation:MinProperties=1
type NovaVSphereDHCPOverrides struct {
	// hostname is the name sent to the DHCP server. Empty sends the guest's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Hostname string `json:"hostname,omitempty"`

	// routeMetric is the metric of routes from DHCP. Empty leaves it to the
	// guest.
	// +optional
	// +kubebuilder:validation:Minimum=1
	RouteMetric int32 `json:"routeMetric,omitempty"`

	// sendHostname sends the guest's name. Empty means true.
	// +optional
	SendHostname *bool `json:"sendHostname,omitempty"`

	// useDNS takes name servers. Empty means true.
	// +optional
	UseDNS *bool `json:"useDNS,omitempty"`

	// useDomains takes search domains. Empty leaves it to the guest.
	// +optional
	UseDomains *bool `json:"useDomains,omitempty"`

	// useHostname takes a host name. Empty means true.
	// +optional
	UseHostname *bool `json:"useHostname,omitempty"`

	// useMTU takes the largest packet. Empty means true.
	// +optional
	UseMTU *bool `json:"useMTU,omitempty"`

	// useNTP takes time servers. Empty means true.
	// +optional
	UseNTP *bool `json:"useNTP,omitempty"`

	// useRoutes takes routes, the default one among them. Empty means true.
	// +optional
	UseRoutes *bool `json:"useRoutes,omitempty"`
}

// Addressing returns how the machine's interfaces get their addresses.
func (m *NovaVSphereMachine) Addressing() []*InterfaceAddressing {
	all := make([]*InterfaceAddressing, len(m.Spec.Network.Interfaces))
	for i := range m.Spec.Network.Interfaces {
		all[i] = &m.Spec.Network.Interfaces[i].InterfaceAddressing
	}
	return all
}
