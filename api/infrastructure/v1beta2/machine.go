package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MachineFinalizer keeps a machine until its VM is gone.
const MachineFinalizer = "machine.infrastructure.cluster.x-k8s.io/nova"

// The Ready condition of a machine is true while its VM is provisioned and
// running, and false with VirtualMachineProvisioned's reason otherwise.

// VirtualMachineProvisionedCondition is true once the VM exists, is powered
// on and has reported an address.
const VirtualMachineProvisionedCondition = "VirtualMachineProvisioned"

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
	// BusyReason: the hypervisor is working on the VM.
	BusyReason = "Busy"
	// PoweringOnReason: the VM is being powered on.
	PoweringOnReason = "PoweringOn"
	// WaitingForAddressesReason: the VM runs and has not reported an address yet.
	WaitingForAddressesReason = "WaitingForAddresses"
	// PoweredOffReason: the VM was up before and is powered off now.
	PoweredOffReason = "PoweredOff"
	// LostReason: the VM was up before and the hypervisor knows it no more. It is never re-created.
	LostReason = "Lost"
	// DeletingReason: the VM is being deleted.
	DeletingReason = clusterv1.DeletingReason
	// CredentialsInvalidReason: the hypervisor refused the credentials, or the Secret lacks them.
	CredentialsInvalidReason = "CredentialsInvalid"
	// EndpointUnreachableReason: the hypervisor does not answer.
	EndpointUnreachableReason = "EndpointUnreachable"
	// NameTakenReason: a VM of this name exists that is not ours. It is never touched.
	NameTakenReason = "NameTaken"
	// SourceNotFoundReason: the template does not exist, or its name is ambiguous.
	SourceNotFoundReason = "SourceNotFound"
	// PlacementNotFoundReason: a datacenter, pool, folder, datastore or network does not exist, or its name is ambiguous.
	PlacementNotFoundReason = "PlacementNotFound"
	// InsufficientResourcesReason: a datastore is full or no host has room.
	InsufficientResourcesReason = "InsufficientResources"
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
}

// MachineStatus is the part of a machine's status that every hypervisor shares.
type MachineStatus struct {
	// conditions are Ready, VirtualMachineProvisioned and Paused. Empty until
	// the first reconcile.
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

	// addresses are those the guest reports. Empty until it has booted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`
}

// MachineInitializationStatus is part of the Cluster API contract.
// +kubebuilder:validation:MinProperties=1
type MachineInitializationStatus struct {
	// provisioned is true once the VM has booted and reported an address. It
	// never becomes false again. Empty means false.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}
