package v1beta2

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MachineFinalizer keeps a machine until its VM is deleted.
const MachineFinalizer = "machine.infrastructure.cluster.x-k8s.io/nova"

// The Ready condition of a machine is true while its VM is provisioned and
// running. Otherwise it is false with the reason of VirtualMachineProvisioned, or
// with the reason of NodeBootstrapped if the bootstrap failed.

// VirtualMachineProvisionedCondition is true once the VM exists, is powered
// on and has reported an address.
const VirtualMachineProvisionedCondition = "VirtualMachineProvisioned"

// VirtualMachineSyncedCondition is true once groups, tags and custom attributes of
// the VM match the machine, and the bootstrap data is removed from the settings of
// the VM, which happens after the node has joined. Ready does not depend on it.
const VirtualMachineSyncedCondition = "VirtualMachineSynced"

// SyncedReason: the VM matches the machine.
const SyncedReason = "Synced"

// SyncingReason: a group, tag or attribute is being changed, or bootstrap data is
// being removed.
const SyncingReason = "Syncing"

// WaitingForNodeReason: the settings of the VM have the bootstrap data until the
// node has joined the workload cluster.
const WaitingForNodeReason = "WaitingForNode"

// NodeBootstrappedCondition is true once the node of the machine has joined, false
// once its bootstrap has failed, and unknown while the bootstrap is in progress. It is
// absent until the guest reports its first step.
const NodeBootstrappedCondition = "NodeBootstrapped"

// Reasons of NodeBootstrapped.
const (
	// NodeJoinedReason: the node has joined the workload cluster.
	NodeJoinedReason = "NodeJoined"
	// BootstrappingReason: the bootstrap of the node is in progress.
	BootstrappingReason = "Bootstrapping"
	// BootstrapRetryingReason: a step of the bootstrap failed and is retried.
	BootstrapRetryingReason = "BootstrapRetrying"
	// BootstrapFailedReason: the bootstrap failed and is not retried. Ready is false
	// with the same reason, and so is InfrastructureReady of the Machine.
	BootstrapFailedReason = "BootstrapFailed"
	// PostBootstrapFailedReason: the node has joined, but a later step failed. Ready
	// does not depend on it.
	PostBootstrapFailedReason = "PostBootstrapFailed"
)

// AddressClaimFinalizer keeps an IPAddressClaim, and so the address, until the
// VM that has the address is deleted.
const AddressClaimFinalizer = "machine.infrastructure.cluster.x-k8s.io/nova-address"

// AssignedAddressesAnnotation has the addresses that pools gave to a machine,
// separated by commas. They do not change while the VM exists.
const AssignedAddressesAnnotation = "machine.infrastructure.cluster.x-k8s.io/assigned-addresses"

// Reasons of VirtualMachineProvisioned. Drivers add their own for failures
// whose cause they understand.
const (
	// ProvisionedReason: the VM runs and has reported an address.
	ProvisionedReason = clusterv1.ProvisionedReason
	// WaitingForInfrastructureReason: the infrastructure cluster is not provisioned yet.
	WaitingForInfrastructureReason = clusterv1.WaitingForClusterInfrastructureReadyReason
	// WaitingForBootstrapDataReason: the bootstrap provider has not written the bootstrap data yet.
	WaitingForBootstrapDataReason = clusterv1.WaitingForBootstrapDataReason
	// CreatingReason: the VM is being created.
	CreatingReason = "Creating"
	// VMBusyReason: the hypervisor is working on the VM.
	VMBusyReason = "VMBusy"
	// PoweringOnReason: the VM is being powered on.
	PoweringOnReason = "PoweringOn"
	// WaitingForAddressesReason: the VM runs and has not reported an address yet.
	WaitingForAddressesReason = "WaitingForAddresses"
	// PoweredOffReason: the VM was running before and is powered off now.
	PoweredOffReason = "PoweredOff"
	// VMNotFoundReason: the VM was running before and does not exist any more. It is never recreated.
	VMNotFoundReason = "VMNotFound"
	// DeletingReason: the VM is being deleted.
	DeletingReason = clusterv1.DeletingReason
	// CredentialsInvalidReason: the hypervisor rejected the credentials, or the Secret does not have them.
	CredentialsInvalidReason = "CredentialsInvalid"
	// EndpointUnreachableReason: the hypervisor does not respond.
	EndpointUnreachableReason = "EndpointUnreachable"
	// HypervisorChangedReason: the server is another hypervisor than the one that has
	// the VMs of the cluster. The VMs are not changed.
	HypervisorChangedReason = "HypervisorChanged"
	// NameConflictReason: a VM with this name exists that is not the VM of the machine. It is never changed.
	NameConflictReason = "NameConflict"
	// VMAmbiguousReason: more than one VM has the identity of the machine. None of
	// them is changed.
	VMAmbiguousReason = "VMAmbiguous"
	// TemplateNotFoundReason: the template does not exist, or its name is ambiguous.
	TemplateNotFoundReason = "TemplateNotFound"
	// PlacementNotFoundReason: a datacenter, pool, folder, datastore, network or instance type does not exist, or its name is ambiguous.
	PlacementNotFoundReason = "PlacementNotFound"
	// OutOfBoundsReason: the identity does not allow an object that the cluster or machine names.
	OutOfBoundsReason = "OutOfBounds"
	// InsufficientResourcesReason: a datastore is full, or no host has enough free resources.
	InsufficientResourcesReason = "InsufficientResources"
	// PoweringOffReason: the guest is shutting down.
	PoweringOffReason = "PoweringOff"
	// GuestUnreachableReason: the guest does not respond to a request to shut down.
	GuestUnreachableReason = "GuestUnreachable"
	// WaitingForAddressPoolReason: a pool has not given an address yet.
	WaitingForAddressPoolReason = "WaitingForAddressPool"
	// AddressInvalidReason: the address from a pool cannot be the address of an interface.
	AddressInvalidReason = "AddressInvalid"
	// AddressInUseReason: another VM in the inventory of the hypervisor has an
	// address of this machine.
	AddressInUseReason = "AddressInUse"
	// RequestQueuedReason: the request is queued until the hypervisor has finished other requests.
	RequestQueuedReason = "RequestQueued"
	// DeleteProtectedReason: the VM is protected against deletion in the hypervisor.
	DeleteProtectedReason = "DeleteProtected"
	// InvalidSpecReason: the hypervisor cannot create the VM with this spec. A retry does not help.
	InvalidSpecReason = "InvalidSpec"
	// DisksInSnapshotReason: disks that do not belong to the machine are in a
	// snapshot, so that they cannot be kept when the VM is deleted.
	DisksInSnapshotReason = "DisksInSnapshot"
	// PermissionDeniedReason: the user does not have a permission in the hypervisor.
	PermissionDeniedReason = "PermissionDenied"
	// HypervisorErrorReason: the hypervisor returned an error that the driver does not know.
	HypervisorErrorReason = "HypervisorError"
)

// MachineSpec is the part of a machine's spec that every hypervisor shares.
type MachineSpec struct {
	// providerID is the ID that the node reports in spec.providerID. The provider
	// sets it once the VM exists. It cannot change afterwards.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// powerOff is how the VM is powered off when the machine is deleted. It can
	// change in a machine, which is not replaced. If not set, the VM is powered off
	// without asking the guest: the node is already drained.
	// +optional
	PowerOff PowerOff `json:"powerOff,omitempty,omitzero"`

	// naming sets the name of the VM. If not set, the VM has the machine's name.
	// The node has the machine's name in either case.
	// +optional
	Naming MachineNaming `json:"naming,omitempty,omitzero"`

	// antiAffinity controls whether the machines of one control plane or
	// MachineDeployment are kept on different hosts: None, Preferred or Required. It
	// can change in a machine, which is not replaced. If not set, antiAffinity of
	// the cluster is used.
	// +optional
	AntiAffinity AntiAffinity `json:"antiAffinity,omitempty"`
}

// MaxVMName is the most characters of a VM's name: oVirt's limit, which is below
// vCenter's 80.
const MaxVMName = 64

// MachineNaming sets the name of a VM.
// +kubebuilder:validation:MinProperties=1
type MachineNaming struct {
	// template is the name of the VM, with the variables {{ .machine.name }}, which
	// must be in it, and {{ .machine.namespace }}. A name of more than 64 characters is cut
	// to 55 and gets a dash and a hash of the whole name. It cannot change in a
	// machine; changing it in a template rolls out machines. Defaults to
	// {{ .machine.name }}.
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
	// PowerOffHard powers off without a shutdown of the guest.
	PowerOffHard PowerOffMode = "Hard"
	// PowerOffSoft requests a shutdown from the guest and waits without a limit.
	PowerOffSoft PowerOffMode = "Soft"
	// PowerOffSoftThenHard requests a shutdown from the guest, and powers off
	// after a timeout or if the guest does not respond.
	PowerOffSoftThenHard PowerOffMode = "SoftThenHard"
)

// DefaultPowerOffTimeout is the default of PowerOff.TimeoutSeconds.
const DefaultPowerOffTimeout = 5 * time.Minute

// PowerOff is how a VM is powered off when its machine is deleted.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.timeoutSeconds) || (has(self.mode) && self.mode == 'SoftThenHard')",message="timeoutSeconds belongs to the mode SoftThenHard"
type PowerOff struct {
	// mode is Hard, Soft or SoftThenHard. Hard powers off at once. Soft
	// requests a shutdown from the guest and waits without a limit. SoftThenHard
	// waits for timeoutSeconds. Defaults to Hard.
	// +optional
	Mode PowerOffMode `json:"mode,omitempty"`

	// timeoutSeconds is the time from the deletion of the machine until
	// SoftThenHard powers off. Defaults to 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// Timeout returns how long SoftThenHard waits for the guest.
func (p *PowerOff) Timeout() time.Duration {
	if p.TimeoutSeconds == 0 {
		return DefaultPowerOffTimeout
	}
	return time.Duration(p.TimeoutSeconds) * time.Second
}

// HostLabel is the label of Machines, and through them of Nodes, that names
// the hypervisor's host a VM runs on. It follows migrations.
const HostLabel = "node.cluster.x-k8s.io/hypervisor-host"

// MachineStatus is the part of a machine's status that every hypervisor shares.
type MachineStatus struct {
	// conditions are Ready, VirtualMachineProvisioned, VirtualMachineSynced,
	// NodeBootstrapped and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization is true for Cluster API once the VM has booted for the first
	// time.
	// +optional
	Initialization MachineInitializationStatus `json:"initialization,omitempty,omitzero"`

	// failureDomain is the failure domain that the VM was created in. If not set,
	// the machine has none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// vmID is the ID of the VM in the hypervisor: the managed object ID in vCenter,
	// such as vm-4711, or the UUID in an engine. It helps to find the VM in the
	// logs and tools of the hypervisor. The controllers do not use it to find the
	// VM. If not set, the VM has not been observed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	VMID string `json:"vmID,omitempty"`

	// host is the host of the hypervisor that the VM runs on. If not set, it is not
	// known.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Host string `json:"host,omitempty"`

	// addresses are the IP addresses that the guest reports, as InternalIP, and its
	// names, in the order of the guest. If not set, the guest has not reported any.
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
	// never becomes false again.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}
