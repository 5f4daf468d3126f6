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

// InfrastructureMachine's Ready condition and corresponding reasons.
const (
	// MachineReadyCondition is true while the VM is provisioned and running. Otherwise it
	// is false with the reason of VirtualMachineProvisioned, or with the reason of
	// NodeBootstrapped if that is BootstrapFailed.
	MachineReadyCondition = clusterv1.ReadyCondition

	// MachineReadyReason: the VM is provisioned and running.
	//
	// Action: none.
	MachineReadyReason = clusterv1.ReadyReason
)

// InfrastructureMachine's VirtualMachineProvisioned condition and
// corresponding reasons. Drivers add their own for failures whose cause they understand.
const (
	// VirtualMachineProvisionedCondition is true once the VM exists, is powered on and has
	// reported an address. Ready depends on it. The reason is Syncing while the VM is
	// changed before its first start.
	VirtualMachineProvisionedCondition = "VirtualMachineProvisioned"

	// ProvisionedReason: the VM runs and has reported an address. In oVirt, a VM that does
	// not respond or that the engine paused keeps this reason, because its node may
	// recover; the message reports it.
	//
	// Action: none.
	ProvisionedReason = clusterv1.ProvisionedReason

	// WaitingForInfrastructureReason: the infrastructure cluster is not provisioned yet.
	//
	// Action: check the conditions of the infrastructure cluster.
	WaitingForInfrastructureReason = clusterv1.WaitingForClusterInfrastructureReadyReason

	// WaitingForBootstrapDataReason: the NovaConfig has no bootstrap data yet.
	//
	// Action: check the condition DataSecretAvailable of the NovaConfig.
	WaitingForBootstrapDataReason = clusterv1.WaitingForBootstrapDataReason

	// WaitingForAddressPoolReason: a pool has not assigned an address yet.
	//
	// Action: check the IPAddressClaim that the message names, and its provider; the pool
	// may be exhausted.
	WaitingForAddressPoolReason = "WaitingForAddressPool"

	// AddressInvalidReason: an address, gateway or prefix length from a pool or from the
	// spec is not valid for the interface.
	//
	// Action: fix the pool or the spec, then delete the Machine; its replacement claims
	// another address.
	AddressInvalidReason = "AddressInvalid"

	// AddressInUseReason: another VM that a machine was created for has an address that
	// this VM would get. The VM is not created.
	//
	// Action: delete the VM that the message names, or assign another address to the
	// machine.
	AddressInUseReason = "AddressInUse"

	// CreatingReason: the VM is being created.
	//
	// Action: wait. A full copy of a template takes as long as the storage needs.
	CreatingReason = "Creating"

	// PoweringOnReason: the VM is being powered on.
	//
	// Action: wait. If the reason stays, check the tasks of the hypervisor.
	PoweringOnReason = "PoweringOn"

	// WaitingForAddressesReason: the VM runs, and its guest has not reported an address.
	//
	// Action: check the console of the VM: is DHCP available, do the guest tools or the
	// guest agent run, is deviceName correct?
	WaitingForAddressesReason = "WaitingForAddresses"

	// PoweredOffReason: the VM was powered off outside of the provider. It is powered on
	// again.
	//
	// Action: find the user or the cause in the events of the hypervisor.
	PoweredOffReason = "PoweredOff"

	// VMNotFoundReason: the VM was deleted in the hypervisor. It is never recreated.
	//
	// Action: delete the Machine; its owner creates a new one.
	VMNotFoundReason = "VMNotFound"

	// VMAmbiguousReason: more than one VM has the identity of the machine: the instance
	// UUID in vSphere, the mark in the comment in oVirt. A VM was copied, or, in oVirt,
	// renamed before it reported its first address. None of them is changed.
	//
	// Action: remove the copy, or give it another instance UUID or clear its comment. In
	// oVirt, restore the name of the machine's own VM. The message has the names and IDs.
	VMAmbiguousReason = "VMAmbiguous"

	// NameConflictReason: a VM with this name exists that is not the VM of the machine. It
	// is never changed or deleted. The message has its ID, unless the user cannot see it.
	//
	// Action: rename or delete that VM, or delete the Machine to get another name. In
	// vSphere, if the notes of the VM name this machine, see
	// docs/vsphere.md#a-clone-with-another-instance-uuid.
	NameConflictReason = "NameConflict"

	// PoweringOffReason: the guest is shutting down.
	//
	// Action: wait. With powerOff.mode Soft, a guest that never shuts down needs you:
	// power off the VM, or change the mode.
	PoweringOffReason = "PoweringOff"

	// GuestUnreachableReason: the request to shut down cannot reach the guest.
	//
	// Action: power off the VM, or set powerOff.mode to Hard.
	GuestUnreachableReason = "GuestUnreachable"

	// DeletingReason: the VM is being powered off and deleted, or the Machine is being
	// deleted and no VM is created for it any more.
	//
	// Action: wait; see docs/workers.md#a-deletion-that-does-not-finish.
	DeletingReason = clusterv1.DeletingReason

	// DeleteProtectedReason: the VM is protected against deletion in the hypervisor. It is
	// not changed.
	//
	// Action: remove the protection in the hypervisor if the VM is to be deleted.
	DeleteProtectedReason = "DeleteProtected"

	// DisksInSnapshotReason: disks that do not belong to the machine are in a snapshot of
	// the VM, so that they cannot be kept when the VM is deleted.
	//
	// Action: delete the snapshots that the message names, or let the backup product
	// delete them.
	DisksInSnapshotReason = "DisksInSnapshot"
)

// InfrastructureMachine's VirtualMachineSynced condition and
// corresponding reasons.
const (
	// VirtualMachineSyncedCondition is true once groups, rules, labels, tags and custom
	// attributes of the VM match the machine, and the bootstrap data is removed from the
	// settings of the VM, which happens after the node has joined. Ready does not depend
	// on it.
	VirtualMachineSyncedCondition = "VirtualMachineSynced"

	// SyncedReason: the VM matches the machine.
	//
	// Action: none.
	SyncedReason = "Synced"

	// SyncingReason: a rule, group, label, tag or attribute is being changed, or bootstrap
	// data is being removed. The message names the change.
	//
	// Action: wait.
	SyncingReason = "Syncing"

	// WaitingForNodeReason: the settings of the VM have the bootstrap data until the node
	// has joined the workload cluster.
	//
	// Action: wait. If the reason stays, see
	// docs/troubleshooting.md#a-machine-has-a-vm-and-no-node.
	WaitingForNodeReason = "WaitingForNode"
)

// InfrastructureMachine's NodeBootstrapped condition and corresponding
// reasons.
const (
	// NodeBootstrappedCondition is true once the node of the machine has joined, false
	// once its bootstrap has failed, and unknown while the bootstrap is in progress. It is
	// absent until the guest reports its first step. Ready depends on it only for
	// BootstrapFailed.
	NodeBootstrappedCondition = "NodeBootstrapped"

	// NodeJoinedReason: the node has joined the workload cluster.
	//
	// Action: none.
	NodeJoinedReason = "NodeJoined"

	// BootstrappingReason: the first boot of the guest is at the step that the message
	// names.
	//
	// Action: wait. If the step stays, see
	// docs/troubleshooting.md#a-machine-has-a-vm-and-no-node.
	BootstrappingReason = "Bootstrapping"

	// BootstrapRetryingReason: kubeadm join, or one of the last phases of kubeadm init,
	// failed and is retried.
	//
	// Action: read the message; see
	// docs/troubleshooting.md#a-machine-has-a-vm-and-no-node.
	BootstrapRetryingReason = "BootstrapRetrying"

	// BootstrapFailedReason: the machine did not become a node, and the bootstrap is not
	// retried. Ready is false with the same reason, and so is InfrastructureReady of the
	// Machine.
	//
	// Action: fix the cause at the end of the message, and delete the Machine. A
	// NovaControlPlane replaces its machines automatically; see
	// docs/bootstrap.md#a-node-that-fails.
	BootstrapFailedReason = "BootstrapFailed"

	// PostBootstrapFailedReason: the machine became a node, but a later step failed, for
	// instance one of postKubeadmCommands. Ready does not depend on it.
	//
	// Action: fix the cause, and replace the Machine if the node needs the step.
	PostBootstrapFailedReason = "PostBootstrapFailed"
)

// AddressClaimFinalizer keeps an IPAddressClaim, and so the address, until the
// VM that has the address is deleted.
const AddressClaimFinalizer = "machine.infrastructure.cluster.x-k8s.io/nova-address"

// AssignedAddressesAnnotation has the addresses that pools gave to a machine,
// separated by commas. They do not change while the VM exists.
const AssignedAddressesAnnotation = "machine.infrastructure.cluster.x-k8s.io/assigned-addresses"

// Failed requests to a hypervisor: reasons of HypervisorAvailable,
// VirtualMachineProvisioned, VirtualMachineSynced, CapacityKnown and Ready.
const (
	// CredentialsInvalidReason: the hypervisor rejected the credentials, the Secret lacks
	// username or password, or the identity does not allow the namespace.
	//
	// Action: fix the problem that the message names; the session is renewed at once. If
	// the Secret does not exist, see
	// docs/troubleshooting.md#the-credentials-secret-was-deleted.
	CredentialsInvalidReason = "CredentialsInvalid"

	// EndpointUnreachableReason: the hypervisor does not respond, or its certificate is
	// not trusted. The manager retries automatically.
	//
	// Action: check spec.server and spec.tls of the infrastructure cluster or of its
	// identity, and the network. The log of the manager (`Connection failed`) has the
	// cause.
	EndpointUnreachableReason = "EndpointUnreachable"

	// HypervisorChangedReason: the server is not the vCenter or engine that has the VMs of
	// the cluster. The VMs are not changed.
	//
	// Action: set spec.server of the infrastructure cluster or of its identity to the
	// former value, or correct the DNS record or proxy behind this name.
	HypervisorChangedReason = "HypervisorChanged"

	// OtherManagementClusterReason: another management cluster manages this cluster. The
	// machines are not changed.
	//
	// Action: after a move or a restore take over, with the command in the message; see
	// docs/day2.md#an-old-backup.
	OtherManagementClusterReason = "OtherManagementCluster"

	// RequestQueuedReason: the limit of concurrent creations is reached, the session is
	// being opened, or, in oVirt, other machines change affinity groups.
	//
	// Action: wait, or raise --max-creations of the manager.
	RequestQueuedReason = "RequestQueued"

	// VMBusyReason: the hypervisor is working on the VM, or it cannot report whether a VM
	// of this name belongs to the machine. In oVirt, while the Machine is being deleted, a
	// request that creates its VM may still be in progress, for at most a minute.
	//
	// Action: wait. If the reason stays, check the tasks of the hypervisor. If vCenter
	// cannot read the settings of the VM, fix its host or datastore, or remove the VM from
	// the inventory. The administrator of an engine can unlock a locked image
	// (unlock_entity.sh).
	VMBusyReason = "VMBusy"

	// InsufficientResourcesReason: a datastore or storage domain is full, no host has
	// enough free resources, no MAC address is left, or a quota is missing or used up.
	//
	// Action: free capacity; the creation is retried automatically.
	InsufficientResourcesReason = "InsufficientResources"

	// OutOfBoundsReason: the identity does not allow an object that the cluster or machine
	// names. The message names the field and the bound.
	//
	// Action: use another object, or ask the administrator to widen the bound: vSphere,
	// docs/vsphere.md#bounds; oVirt, docs/zvirt.md#credentials.
	OutOfBoundsReason = "OutOfBounds"

	// TemplateNotFoundReason: the template or its version does not exist, or several
	// templates have its name.
	//
	// Action: set its inventory path or ID in a new machine template.
	TemplateNotFoundReason = "TemplateNotFound"

	// PlacementNotFoundReason: an object of the hypervisor that the spec names, for
	// instance a datacenter, pool, folder, datastore, storage domain, network, vNIC
	// profile, instance type, group or tag, does not exist, or several have its name.
	//
	// Action: fix the spec of the infrastructure cluster, or create a new machine
	// template; an inventory path or an ID is never ambiguous.
	PlacementNotFoundReason = "PlacementNotFound"

	// InvalidSpecReason: the hypervisor rejects the spec; the message has its error. A
	// retry does not help.
	//
	// Action: fix the spec in a new machine template.
	InvalidSpecReason = "InvalidSpec"

	// PermissionDeniedReason: the user lacks a permission in the hypervisor. vCenter names
	// the privilege and the object. An engine does not; the message names the step that
	// failed.
	//
	// Action: grant the permission: vSphere, docs/vsphere.md#least-privileges; oVirt,
	// docs/zvirt.md#least-privileges.
	PermissionDeniedReason = "PermissionDenied"

	// HypervisorErrorReason: the hypervisor returned another error; the message has it.
	//
	// Action: check the tasks in vCenter or the events in the portal of the engine. If
	// vCenter shows a VM as powered on and refuses to power it off because it is off, or
	// the reverse, disconnect the host of the VM in vCenter and connect it again.
	HypervisorErrorReason = "HypervisorError"

	// InternalErrorReason: a request to the API server of the management cluster failed.
	// It is retried.
	//
	// Action: check the log of the manager.
	InternalErrorReason = clusterv1.InternalErrorReason
)

// MachineSpec is the part of a machine's spec that every hypervisor shares.
type MachineSpec struct {
	// providerID is the ID that the node reports in spec.providerID. The provider
	// sets it once the VM exists. It cannot change afterwards. If not set, the VM has
	// not been created yet.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// powerOff is how the VM is powered off when the machine is deleted. It can
	// change in a machine, which is not replaced. If not set, the VM is powered off
	// without asking the guest: the node is already drained.
	// +optional
	PowerOff PowerOff `json:"powerOff,omitempty,omitzero"`

	// naming sets the name of the VM. It cannot change in a machine. A machine
	// template with another value, once it is referenced, rolls out machines. If not
	// set, the VM has the machine's name. The node has the machine's name in either
	// case.
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
	// must be in it, and {{ .machine.namespace }}. A name of more than 64 characters
	// is cut to 55 and gets a dash and a hash of the whole name. It cannot change in a
	// machine. A machine template with another value, once it is referenced, rolls out
	// machines. Defaults to {{ .machine.name }}.
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

	// resizable are the sizes of the VM, such as its memory, and how far the
	// hypervisor can increase them while the VM runs. If not set, they are not known.
	// +optional
	// +listType=map
	// +listMapKey=field
	// +kubebuilder:validation:MaxItems=8
	Resizable []ResizableStatus `json:"resizable,omitempty"`
}

// ResizableStatus is a size of a VM.
type ResizableStatus struct {
	// field is the field of spec that sets the size, such as hardware.cpus.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Field string `json:"field,omitempty"`

	// size is the size of the VM in the unit of the field.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Size int64 `json:"size,omitempty"`

	// maxSize is the largest size that the hypervisor can give the VM while it runs.
	// If not set, it cannot change the size; message has the reason.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxSize int64 `json:"maxSize,omitempty"`

	// step is the number of which an increase must be a multiple. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Step int64 `json:"step,omitempty"`

	// message is why the hypervisor cannot increase the size while the VM runs. If
	// not set, it can.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
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
