package v1beta2

import ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

// InterfaceAddressing is how a network interface gets its addresses, the same
// on every hypervisor. An interface without addresses, pools and DHCP settings
// requests an IPv4 address by DHCP.
// +kubebuilder:validation:XValidation:rule="!has(self.gateway4) || has(self.addresses) || has(self.addressesFromPools)",message="gateway4 needs an address: set addresses or addressesFromPools"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway6) || has(self.addresses) || has(self.addressesFromPools)",message="gateway6 needs an address: set addresses or addressesFromPools"
type InterfaceAddressing struct {
	// macAddress is the MAC address of the interface. It belongs to one machine, so
	// a template cannot have it. If not set, the hypervisor chooses one.
	// +optional
	// +kubebuilder:validation:MinLength=17
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$`
	MACAddress string `json:"macAddress,omitempty"`

	// dhcp4 requests an IPv4 address by DHCP. If not set, the interface does so only
	// if it has no other address.
	// +optional
	DHCP4 *bool `json:"dhcp4,omitempty"`

	// dhcp6 requests an IPv6 address by DHCP. Defaults to false.
	// +optional
	DHCP6 *bool `json:"dhcp6,omitempty"`

	// addresses are static IP addresses with their prefix length, such as
	// 192.0.2.10/24. They belong to one machine, so a template cannot have them: use
	// addressesFromPools there. If not set, the interface has no static addresses.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="an address is written with the length of its network, such as 192.0.2.10/24"
	Addresses []string `json:"addresses,omitempty"`

	// addressesFromPools are Cluster API IPAM pools that each give the interface one
	// address. If not set, no pool is used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	AddressesFromPools []ipamv1.IPPoolReference `json:"addressesFromPools,omitempty"`

	// gateway4 is the IPv4 default gateway. If not set, the gateway of the pool is
	// used, if it has one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4",message="gateway4 must be an IPv4 address"
	Gateway4 string `json:"gateway4,omitempty"`

	// gateway6 is the IPv6 default gateway. If not set, the gateway of the pool is
	// used, if it has one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 6",message="gateway6 must be an IPv6 address"
	Gateway6 string `json:"gateway6,omitempty"`

	// nameservers are the IP addresses of DNS servers. If not set, those of DHCP are
	// used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="a name server must be an IP address"
	Nameservers []string `json:"nameservers,omitempty"`

	// searchDomains are the DNS search domains. If not set, those of DHCP are used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	SearchDomains []string `json:"searchDomains,omitempty"`
}

// InterfaceFailureDomain has the settings of a network interface in one failure
// domain. If addressesFromPools, dhcp4 or dhcp6 is set, these and the gateways
// replace those of the interface. Each other field replaces its own. A name server
// or search domain here takes precedence over one of the failure domain.
// +kubebuilder:validation:XValidation:rule="!has(self.gateway4) || has(self.addressesFromPools)",message="gateway4 needs addressesFromPools"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway6) || has(self.addressesFromPools)",message="gateway6 needs addressesFromPools"
type InterfaceFailureDomain struct {
	// name is the name of the failure domain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`

	// dhcp4 requests an IPv4 address by DHCP in this failure domain. If not set, the
	// interface's is used, unless addressesFromPools or dhcp6 is set here.
	// +optional
	DHCP4 *bool `json:"dhcp4,omitempty"`

	// dhcp6 requests an IPv6 address by DHCP in this failure domain. If not set, the
	// interface's is used, unless addressesFromPools or dhcp4 is set here.
	// +optional
	DHCP6 *bool `json:"dhcp6,omitempty"`

	// addressesFromPools are Cluster API IPAM pools that each give the interface
	// one address in this failure domain. If not set, those of the interface are
	// used, unless dhcp4 or dhcp6 is set here.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	AddressesFromPools []ipamv1.IPPoolReference `json:"addressesFromPools,omitempty"`

	// gateway4 is the IPv4 default gateway in this failure domain. If not set, the
	// pool's is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:Format=ipv4
	Gateway4 string `json:"gateway4,omitempty"`

	// gateway6 is the IPv6 default gateway in this failure domain. If not set, the
	// pool's is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:Format=ipv6
	Gateway6 string `json:"gateway6,omitempty"`

	// nameservers are the addresses of DNS servers in this failure domain. If not
	// set, those of the interface are used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="a name server must be an IP address"
	Nameservers []string `json:"nameservers,omitempty"`

	// searchDomains are the DNS search domains in this failure domain. If not set,
	// those of the interface are used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	SearchDomains []string `json:"searchDomains,omitempty"`
}

// With returns a copy of the settings with those of a failure domain.
func (a *InterfaceAddressing) With(own *InterfaceFailureDomain) InterfaceAddressing {
	out := *a
	if own.AddressesFromPools != nil || own.DHCP4 != nil || own.DHCP6 != nil {
		out.AddressesFromPools, out.DHCP4, out.DHCP6 = own.AddressesFromPools, own.DHCP4, own.DHCP6
		out.Gateway4, out.Gateway6 = own.Gateway4, own.Gateway6
	}
	if own.Nameservers != nil {
		out.Nameservers = own.Nameservers
	}
	if own.SearchDomains != nil {
		out.SearchDomains = own.SearchDomains
	}
	return out
}

// UsesDHCP4 reports whether the interface gets an IPv4 address from DHCP.
func (a *InterfaceAddressing) UsesDHCP4() bool {
	if a.DHCP4 != nil {
		return *a.DHCP4
	}
	return len(a.Addresses) == 0 && len(a.AddressesFromPools) == 0 && !a.UsesDHCP6()
}

// UsesDHCP6 reports whether the interface gets an IPv6 address from DHCP.
func (a *InterfaceAddressing) UsesDHCP6() bool { return a.DHCP6 != nil && *a.DHCP6 }
