package v1beta2

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MachineFinalizer keeps a machine until its VM is gone.
const MachineFinalizer = "machine.infrastructure.cluster.x-k8s.io/nova"

// The Ready condition of a machine is true while its VM is provisioned and
// running, and false with VirtualMachineProvisioned's reason otherwise; or with
// NodeBootstrapped's, when the first boot failed.

// VirtualMachineProvisionedCondition is true once the VM exists, is powered
// on and has reported an address.
const VirtualMachineProvisionedCondition = "VirtualMachineProvisioned"

// VirtualMachineSyncedCondition is true once what surrounds the VM is as its
// machine asks: groups, tags, and user data that left the VM's settings after
// the node joined. It says nothing about Ready.
const VirtualMachineSyncedCondition = "VirtualMachineSynced"

// SyncedReason: nothing is left to do around the VM.
const SyncedReason = "Synced"

// SyncingReason: something around the VM is not yet as its machine asks.
const SyncingReason = "Syncing"

// WaitingForNodeReason: the VM's settings hold the user data until its node has
// joined the tenant.
const WaitingForNodeReason = "WaitingForNode"

// NodeBootstrappedCondition is true once the machine's node has joined, false
// once its first boot failed for good, and unknown while it is under way. It
// is absent while the guest has said nothing.
const NodeBootstrappedCondition = "NodeBootstrapped"

// Reasons of NodeBootstrapped.
const (
	// NodeJoinedReason: the node is part of the tenant.
	NodeJoinedReason = "NodeJoined"
	// BootstrappingReason: the guest is at a step of its first boot.
	BootstrappingReason = "Bootstrapping"
	// BootstrapRetryingReason: a step of the first boot failed and is tried again.
	BootstrapRetryingReason = "BootstrapRetrying"
	// BootstrapFailedReason: the first boot failed for good. Ready is false with
	// the same reason, and so is InfrastructureReady of the Machine.
	BootstrapFailedReason = "BootstrapFailed"
	// PostBootstrapFailedReason: the machine became a node, and what was to
	// follow failed. Ready does not mind.
	PostBootstrapFailedReason = "PostBootstrapFailed"
)

// AddressClaimFinalizer keeps an IPAddressClaim, and so the address, until the
// VM that has the address is gone.
const AddressClaimFinalizer = "machine.infrastructure.cluster.x-k8s.io/nova-address"

// AssignedAddressesAnnotation holds the addresses that the pools gave to a machine,
// separated by commas. They do not change for as long as the VM exists.
const AssignedAddressesAnnotation = "machine.infrastructure.cluster.x-k8s.io/assigned-addresses"

// Reasons of VirtualMachineProvisioned. Drivers add their own for failures
// whose cause they understand.
const (
	// ProvisionedReason: the VM is up.
	ProvisionedReason = clusterv1.ProvisionedReason
	// WaitingForInfrastructureReason: the cluster's infrastructure is not provisioned yet.
	WaitingForInfrastructureReason = clusterv1.WaitingForClusterInfrastructureReadyReason
	// WaitingForBootstrapDataReason: the bootstrap provider has not written the user data yet.
	WaitingForBootstrapDataReason = clusterv1.WaitingForBootstrapDataReason
	// CreatingReason: the VM is being created.
	CreatingReason = "Creating"
	// VMBusyReason: the hypervisor is working on the VM.
	VMBusyReason = "VMBusy"
	// PoweringOnReason: the VM is being powered on.
	PoweringOnReason = "PoweringOn"
	// WaitingForAddressesReason: the VM runs and has not reported an address yet.
	WaitingForAddressesReason = "WaitingForAddresses"
	// PoweredOffReason: the VM was up before and is powered off now.
	PoweredOffReason = "PoweredOff"
	// VMNotFoundReason: the VM was up before and the hypervisor knows it no more. It is never re-created.
	VMNotFoundReason = "VMNotFound"
	// DeletingReason: the VM is being deleted.
	DeletingReason = clusterv1.DeletingReason
	// CredentialsInvalidReason: the hypervisor refused the credentials, or the Secret lacks them.
	CredentialsInvalidReason = "CredentialsInvalid"
	// EndpointUnreachableReason: the hypervisor does not answer.
	EndpointUnreachableReason = "EndpointUnreachable"
	// HypervisorChangedReason: another hypervisor answers than the one the
	// cluster's VMs are on. Nothing is done about them.
	HypervisorChangedReason = "HypervisorChanged"
	// NameConflictReason: a VM of this name exists that is not ours. It is never touched.
	NameConflictReason = "NameConflict"
	// VMAmbiguousReason: VMs carry the machine's mark, and nobody can tell
	// which one is the machine's. None of them is touched.
	VMAmbiguousReason = "VMAmbiguous"
	// TemplateNotFoundReason: the template does not exist, or its name is ambiguous.
	TemplateNotFoundReason = "TemplateNotFound"
	// PlacementNotFoundReason: a datacenter, pool, folder, datastore, network or instance type does not exist, or its name is ambiguous.
	PlacementNotFoundReason = "PlacementNotFound"
	// OutOfBoundsReason: the identity does not allow an object that the cluster or machine names.
	OutOfBoundsReason = "OutOfBounds"
	// InsufficientResourcesReason: a datastore is full or no host has room.
	InsufficientResourcesReason = "InsufficientResources"
	// PoweringOffReason: the guest was asked to power itself off.
	PoweringOffReason = "PoweringOff"
	// GuestUnreachableReason: the guest cannot be asked to power itself off.
	GuestUnreachableReason = "GuestUnreachable"
	// WaitingForAddressPoolReason: a pool has not given an address yet.
	WaitingForAddressPoolReason = "WaitingForAddressPool"
	// AddressInvalidReason: what a pool gave is no address that an interface can have.
	AddressInvalidReason = "AddressInvalid"
	// AddressInUseReason: another VM in the inventory of the hypervisor has an
	// address that this VM is to get.
	AddressInUseReason = "AddressInUse"
	// RequestQueuedReason: the request waits for its turn at the hypervisor.
	RequestQueuedReason = "RequestQueued"
	// DeleteProtectedReason: somebody protected the VM against deletion at the hypervisor.
	DeleteProtectedReason = "DeleteProtected"
	// InvalidSpecReason: the hypervisor cannot do what the spec asks, however often it is asked.
	InvalidSpecReason = "InvalidSpec"
	// DisksInSnapshotReason: disks that are not the machine's own are in a
	// snapshot, so that they cannot be kept when the VM is deleted.
	DisksInSnapshotReason = "DisksInSnapshot"
	// PermissionDeniedReason: the account lacks a permission at the hypervisor.
	PermissionDeniedReason = "PermissionDenied"
	// HypervisorErrorReason: the hypervisor failed for a cause the driver does not know.
	HypervisorErrorReason = "HypervisorError"
)

// MachineSpec is the part of a machine's spec that every hypervisor shares.
type MachineSpec struct {
	// providerID is the ID that the node reports in spec.providerID. Set by
	// the provider once the VM is known; empty until then.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// powerOff is how the VM is powered off when the machine is deleted. It
	// can change. Empty means hard: the node was drained before.
	// +optional
	PowerOff PowerOff `json:"powerOff,omitempty,omitzero"`

	// naming sets the name of the VM. If not set, the VM has the machine's name.
	// The node has the machine's name in either case.
	// +optional
	Naming MachineNaming `json:"naming,omitempty,omitzero"`
}

// MaxVMName is the most characters of a VM's name: oVirt's limit, which is below
// vCenter's 80.
const MaxVMName = 64

// MachineNaming sets the name of a VM.
// +kubebuilder:validation:MinProperties=1
type MachineNaming struct {
	// template is the name, with the variables {{ .machine.name }}, which has to be
	// in it, and {{ .machine.namespace }}. A name of more than 64 characters is cut
	// to 55 and gets a dash and a hash of the whole name. It cannot change. If not
	// set, {{ .machine.name }} is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]|[{][{] *[.]machine[.](name|namespace) *[}][}])([A-Za-z0-9._-]|[{][{] *[.]machine[.](name|namespace) *[}][}])*$')",message="template must be letters, digits, dashes, underscores, dots and the variables {{ .machine.name }} and {{ .machine.namespace }}, and must start with a letter, a digit or a variable"
	// +kubebuilder:validation:XValidation:rule="self.matches('[{][{] *[.]machine[.]name *[}][}]')",message="template must contain {{ .machine.name }}: two VMs cannot have the same name"
	Template string `json:"template,omitempty"`
}

// nameVariable is a variable of MachineNaming.Template.
var nameVariable = regexp.MustCompile(`{{ *\.machine\.(name|namespace) *}}`)

// VMName returns the name of the VM of m. It follows from the metadata and the
// spec of m alone and does not change.
func (s *MachineSpec) VMName(m metav1.Object) string {
	if s.Naming.Template == "" {
		return m.GetName()
	}
	values := map[string]string{"name": m.GetName(), "namespace": m.GetNamespace()}
	name := nameVariable.ReplaceAllStringFunc(s.Naming.Template, func(found string) string {
		return values[nameVariable.FindStringSubmatch(found)[1]]
	})
	if len(name) > MaxVMName {
		sum := sha256.Sum256([]byte(name))
		tail := "-" + hex.EncodeToString(sum[:4])
		name = name[:MaxVMName-len(tail)] + tail
	}
	return name
}

// PowerOffMode is how a VM is powered off.
// +kubebuilder:validation:Enum=Hard;Soft;SoftThenHard
type PowerOffMode string

// Modes of PowerOff.
const (
	// PowerOffHard takes the power away.
	PowerOffHard PowerOffMode = "Hard"
	// PowerOffSoft asks the guest, and waits for as long as it takes.
	PowerOffSoft PowerOffMode = "Soft"
	// PowerOffSoftThenHard asks the guest, and takes the power away when that
	// takes too long or the guest cannot be asked.
	PowerOffSoftThenHard PowerOffMode = "SoftThenHard"
)

// DefaultPowerOffTimeout is how long SoftThenHard waits when it is not said.
const DefaultPowerOffTimeout = 5 * time.Minute

// PowerOff is how a VM is powered off when its machine is deleted.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.timeoutSeconds) || (has(self.mode) && self.mode == 'SoftThenHard')",message="timeoutSeconds belongs to the mode SoftThenHard"
type PowerOff struct {
	// mode is Hard, Soft or SoftThenHard. Empty means Hard.
	// +optional
	Mode PowerOffMode `json:"mode,omitempty"`

	// timeoutSeconds is how long SoftThenHard waits for the guest, from the
	// deletion of the machine. Empty means 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// Timeout is how long SoftThenHard waits for the guest.
func (p *PowerOff) Timeout() time.Duration {
	if p.TimeoutSeconds == 0 {
		return DefaultPowerOffTimeout
	}
	return time.Duration(p.TimeoutSeconds) * time.Second
}

// HostLabel is the label of Machines, and through them of Nodes, that names
// the hypervisor's host a VM runs on. It follows migrations.
const HostLabel = "node.cluster.x-k8s.io/hypervisor-host"

// SpreadGroup names the machines that m is to be kept apart from: those of its
// control plane, or of its MachineDeployment or MachineSet. It follows from
// m's labels; empty means that m belongs to none.
func SpreadGroup(m metav1.Object) string {
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

// MachineStatus is the part of a machine's status that every hypervisor shares.
type MachineStatus struct {
	// conditions are Ready, VirtualMachineProvisioned, VirtualMachineSynced
	// and Paused. Empty until the first reconcile.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization tells Cluster API that the VM came up for the first
	// time. Empty until then.
	// +optional
	Initialization MachineInitializationStatus `json:"initialization,omitempty,omitzero"`

	// failureDomain is where the VM landed. Empty when the cluster has no
	// failure domains.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// host is the hypervisor's host the VM runs on. Empty while it is not
	// known.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Host string `json:"host,omitempty"`

	// addresses are those the guest reports, as InternalIP unless the provider
	// knows that they can be reached from outside, and its names. Their order
	// is the guest's. Empty until it has booted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`

	// networkInterfaces are the VM's network interfaces, in the order of
	// spec.network.interfaces. If not set, the guest has not reported them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	NetworkInterfaces []NetworkInterfaceStatus `json:"networkInterfaces,omitempty"`
}

// Bounds of NetworkInterfaceStatus.
const (
	// MaxNetworkInterfaces is the most network interfaces in a status.
	MaxNetworkInterfaces = 10
	// MaxReportedAddresses is the most addresses of a network interface in a
	// status.
	MaxReportedAddresses = 16
)

// NetworkInterfaceStatus is a network interface of a VM.
type NetworkInterfaceStatus struct {
	// network is the name of the network in the hypervisor. If not set, it is not
	// known.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Network string `json:"network,omitempty"`

	// macAddress is the hardware address.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	MACAddress string `json:"macAddress,omitempty"`

	// addresses are the IP addresses that the guest reports, among them such that
	// move between machines. If not set, it reports none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=45
	Addresses []string `json:"addresses,omitempty"`
}

// MachineInitializationStatus is part of the Cluster API contract.
// +kubebuilder:validation:MinProperties=1
type MachineInitializationStatus struct {
	// provisioned is true once the VM has booted and reported an address. It
	// never becomes false again. Empty means false.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}
