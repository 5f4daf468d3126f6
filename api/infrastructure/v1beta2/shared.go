package v1beta2

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// AntiAffinity controls whether machines of one group are kept on different hosts.
// +kubebuilder:validation:Enum=None;Preferred;Required
type AntiAffinity string

// Values of AntiAffinity.
const (
	// AntiAffinityNone lets the hypervisor choose hosts freely.
	AntiAffinityNone AntiAffinity = "None"
	// AntiAffinityPreferred keeps machines on different hosts where possible.
	AntiAffinityPreferred AntiAffinity = "Preferred"
	// AntiAffinityRequired starts no machine on a host that runs another machine
	// of the group.
	AntiAffinityRequired AntiAffinity = "Required"
)

// AntiAffinityOf returns the first value that is set: usually the machine's, then
// the cluster's. If none is set, control plane machines have Preferred, and other
// machines None.
func AntiAffinityOf(m metav1.Object, values ...AntiAffinity) AntiAffinity {
	if mode := cmp.Or(values...); mode != "" {
		return mode
	}
	if _, ok := m.GetLabels()[clusterv1.MachineControlPlaneLabel]; ok {
		return AntiAffinityPreferred
	}
	return AntiAffinityNone
}

// AntiAffinityGroup returns the name of the group of machines that antiAffinity of m
// is about: those of its control plane, MachineDeployment or MachineSet. It follows
// from the labels of m. Without a name, m belongs to no group.
func AntiAffinityGroup(m metav1.Object) string {
	labels := m.GetLabels()
	cluster := labels[clusterv1.ClusterNameLabel]
	if cluster == "" {
		return ""
	}
	if _, ok := labels[clusterv1.MachineControlPlaneLabel]; ok {
		return cluster + "-control-plane"
	}
	for _, label := range []string{clusterv1.MachineDeploymentNameLabel, clusterv1.MachineSetNameLabel} {
		if name := labels[label]; name != "" {
			return name
		}
	}
	return ""
}

// CloneMode controls whether the disks of a VM are copies of the template's disks.
// +kubebuilder:validation:Enum=Full;Linked;LinkedOrFull
type CloneMode string

// Values of CloneMode.
const (
	// CloneFull copies the disks of the template.
	CloneFull CloneMode = "Full"
	// CloneLinked stores only differences from the disks of the template, and
	// fails if that is not possible.
	CloneLinked CloneMode = "Linked"
	// CloneLinkedOrFull is Linked where that is possible, and Full otherwise.
	CloneLinkedOrFull CloneMode = "LinkedOrFull"
)

// Firmware is the firmware that a VM boots with.
// +kubebuilder:validation:Enum=BIOS;EFI
type Firmware string

// Values of Firmware.
const (
	// FirmwareBIOS is a legacy BIOS.
	FirmwareBIOS Firmware = "BIOS"
	// FirmwareEFI is UEFI.
	FirmwareEFI Firmware = "EFI"
)

// CPUTopology defines how the virtual CPUs are divided.
// +kubebuilder:validation:MinProperties=1
type CPUTopology struct {
	// coresPerSocket is the number of cores of each socket. cpus must be a
	// multiple of it. If not set, the default of the hypervisor is used: vCenter
	// chooses, and an engine gets one socket.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=768
	CoresPerSocket int32 `json:"coresPerSocket,omitempty"`
}

// IdentityReference names the credentials for the hypervisor.
type IdentityReference struct {
	// kind is Secret or the kind of identity of the provider, NovaVSphereIdentity
	// or NovaZVirtIdentity. A Secret is in the namespace of the cluster and has the
	// keys username and password. An identity is cluster-scoped and has its own
	// server. Defaults to Secret.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// name is the name of the Secret or identity.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// credentialsSuffix ends the name of the Secret of a cluster without identityRef.
const credentialsSuffix = "-credentials"

// IdentityOf returns the identityRef of an infrastructure cluster, with its
// defaults.
func IdentityOf(c metav1.Object, spec *ClusterSpec) IdentityReference {
	if spec.IdentityRef.Name != "" {
		return IdentityReference{Kind: cmp.Or(spec.IdentityRef.Kind, SecretIdentityKind), Name: spec.IdentityRef.Name}
	}
	name := c.GetLabels()[clusterv1.ClusterNameLabel]
	for _, owner := range c.GetOwnerReferences() {
		if owner.Kind == "Cluster" && strings.HasPrefix(owner.APIVersion, clusterv1.GroupVersion.Group+"/") {
			name = owner.Name
		}
	}
	return IdentityReference{Kind: SecretIdentityKind, Name: cmp.Or(name, c.GetName()) + credentialsSuffix}
}

// FailureDomain is the part of a failure domain that every hypervisor shares.
type FailureDomain struct {
	// name is the name that Machines have in spec.failureDomain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\s]+$`
	Name string `json:"name,omitempty"`

	// controlPlane controls whether control plane machines may be created in the
	// failure domain. A change affects new machines only. Defaults to true.
	// +optional
	ControlPlane *bool `json:"controlPlane,omitempty"`

	// networks are the networks of the interfaces of machines in this failure domain.
	// They replace the networks of machines and of the cluster. A change affects new
	// machines only. If not set, machines have the same networks in all failure
	// domains.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:XValidation:rule="!self.exists(n, !has(n.interface)) || self.size() == 1",message="a network without interface is for all interfaces: it must be the only one"
	Networks []FailureDomainNetwork `json:"networks,omitempty"`
}

// FailureDomainNetwork is the network of an interface in a failure domain.
type FailureDomainNetwork struct {
	// interface is the index of the interface in spec.network.interfaces of
	// machines, from 0. If not set, the network is for all interfaces.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	Interface *int32 `json:"interface,omitempty"`

	// network is the network, in the form that an interface of a machine has it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Network string `json:"network,omitempty"`

	// nameservers are the IP addresses of DNS servers in this failure domain. If
	// not set, the nameservers of the interface are used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="a name server must be an IP address"
	Nameservers []string `json:"nameservers,omitempty"`

	// searchDomains are the DNS search domains in this failure domain. If not set,
	// the searchDomains of the interface are used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	SearchDomains []string `json:"searchDomains,omitempty"`
}

// TakesControlPlane reports whether control plane machines may be created in the
// failure domain.
func (d *FailureDomain) TakesControlPlane() bool { return d.ControlPlane == nil || *d.ControlPlane }

// LastInterface returns the highest interface index in networks; -1, if there is
// none.
func (d *FailureDomain) LastInterface() int {
	last := -1
	for i := range d.Networks {
		if n := d.Networks[i].Interface; n != nil {
			last = max(last, int(*n))
		}
	}
	return last
}

// Connect returns the network of the interface at an index in the failure domain, and
// its addressing with the DNS settings of that network.
func (d *FailureDomain) Connect(i int, network string, a *InterfaceAddressing) (string, InterfaceAddressing) {
	out := *a
	at := slices.IndexFunc(d.Networks, func(n FailureDomainNetwork) bool { return n.Interface == nil || int(*n.Interface) == i })
	if at >= 0 {
		n := &d.Networks[at]
		network = n.Network
		if n.Nameservers != nil {
			out.Nameservers = n.Nameservers
		}
		if n.SearchDomains != nil {
			out.SearchDomains = n.SearchDomains
		}
	}
	return network, out
}
