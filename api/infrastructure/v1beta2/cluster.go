package v1beta2

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ClusterFinalizer keeps an infrastructure cluster until its machines are deleted.
const ClusterFinalizer = "cluster.infrastructure.cluster.x-k8s.io/nova"

// CredentialsFinalizer keeps a Secret while infrastructure clusters of a kind have
// their credentials in it. Each kind has its own finalizer: its manager does not see
// the clusters of other kinds.
func CredentialsFinalizer(kind string) string {
	return strings.ToLower(kind) + "." + GroupVersion.Group + "/credentials"
}

// ClusterIDAnnotation holds the ID from which the identities of a cluster's
// VMs are derived: the UID the infrastructure cluster had when it was first
// reconciled. It is metadata, so that clusterctl move keeps it.
const ClusterIDAnnotation = "infrastructure.cluster.x-k8s.io/nova-cluster-id"

// HypervisorIDAnnotation has the ID of the hypervisor of the first session of a
// cluster, if the hypervisor has one. While the server has another ID, machines of the
// cluster are not changed: their VMs would look deleted. It is metadata, so that
// clusterctl move keeps it.
const HypervisorIDAnnotation = "infrastructure.cluster.x-k8s.io/nova-hypervisor-id"

// InfrastructureCluster's Ready condition and corresponding reasons.
const (
	// ClusterReadyCondition is true while machines can be created: HypervisorAvailable is
	// true and the control plane endpoint is known. Otherwise it has the reason of
	// HypervisorAvailable or ManagementClusterMatches, or one of its own.
	ClusterReadyCondition = clusterv1.ReadyCondition

	// ClusterReadyReason: machines can be created.
	//
	// Action: none.
	ClusterReadyReason = clusterv1.ReadyReason

	// WaitingForEndpointReason: neither the infrastructure cluster nor the Cluster has the
	// address of the API server.
	//
	// Action: set spec.controlPlaneEndpoint of the infrastructure cluster.
	WaitingForEndpointReason = "WaitingForControlPlaneEndpoint"

	// WaitingForMachinesReason: the infrastructure cluster is being deleted, and the
	// machines in the message still exist.
	//
	// Action: wait. If the reason stays, check the machines that the message names; see
	// docs/workers.md#a-deletion-that-does-not-finish.
	WaitingForMachinesReason = "WaitingForMachines"

	// ClusterDeletingReason: the infrastructure cluster is being deleted.
	//
	// Action: wait.
	ClusterDeletingReason = clusterv1.DeletingReason
)

// InfrastructureCluster's HypervisorAvailable condition and
// corresponding reasons.
const (
	// HypervisorAvailableCondition is true while a session with the hypervisor is open
	// and the objects that the cluster names exist. Ready depends on it.
	HypervisorAvailableCondition = "HypervisorAvailable"

	// HypervisorAvailableReason: the session is open.
	//
	// Action: none.
	HypervisorAvailableReason = "Available"
)

// InfrastructureCluster's ControlPlaneEndpointUnique condition and
// corresponding reasons.
const (
	// EndpointUniqueCondition is false while another cluster on the same hypervisor has
	// the same control plane endpoint, and absent otherwise. Ready does not depend on it.
	EndpointUniqueCondition = "ControlPlaneEndpointUnique"

	// EndpointInUseReason: another cluster on the same hypervisor has the same control
	// plane endpoint. An event reports this too.
	//
	// Action: delete the newer of the two clusters, and create it with another
	// spec.controlPlaneEndpoint. A change of the field has no effect once the Cluster has
	// the endpoint.
	EndpointInUseReason = "EndpointInUse"
)

// ClusterSpec is the part of an infrastructure cluster's spec that every
// hypervisor shares.
type ClusterSpec struct {
	// controlPlaneEndpoint is the address of the API server of the workload
	// cluster: a free IP address for kube-vip, or the address of a load balancer. A
	// change has no effect once the Cluster has an endpoint. If not set, the
	// controller waits until the Cluster has one.
	// +optional
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`

	// server is the host name or address of the vCenter or engine, with a port
	// if it is not 443, without scheme and path. It is required unless identityRef
	// names an identity, which has its own server: its credentials are sent nowhere
	// else, and server must not be set. Changing it replaces no machines.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[][0-9A-Za-z._:-]+$')",message="server is a host name or address with an optional port, without scheme, path or credentials"
	Server string `json:"server,omitempty"`

	// tls defines how the certificate of server is verified. It must not be set if
	// server comes from an identity. A change replaces no machines. If not set, the
	// CAs of the system are used. The CA of an engine is not among them.
	// +optional
	TLS Trust `json:"tls,omitempty,omitzero"`

	// identityRef names the credentials for server. Changing it replaces no
	// machines. If not set, the Secret <name of the Cluster>-credentials in the
	// namespace of the cluster is used.
	// +optional
	IdentityRef IdentityReference `json:"identityRef,omitempty,omitzero"`

	// network is the network of machine interfaces that do not name one. On vSphere
	// it is the name, inventory path or reference of a network; on zVirt it is a
	// vNIC profile as network/profile, or its ID. A change affects new machines
	// only. If not set, each interface must name a network, unless the failure
	// domain does.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Network string `json:"network,omitempty"`

	// antiAffinity controls whether the machines of one control plane or
	// MachineDeployment are kept on different hosts: None, Preferred or Required.
	// Machines can override it. A change replaces no machines. If not set, control
	// plane machines have Preferred, and other machines None.
	// +optional
	AntiAffinity AntiAffinity `json:"antiAffinity,omitempty"`
}

// ClusterStatus is the part of an infrastructure cluster's status that every
// hypervisor shares.
type ClusterStatus struct {
	// conditions are Ready, HypervisorAvailable and Paused, and
	// ControlPlaneEndpointUnique while another cluster has the same endpoint.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization is true for Cluster API once machines can be created.
	// +optional
	Initialization ClusterInitializationStatus `json:"initialization,omitempty,omitzero"`

	// failureDomains are the failure domains that Cluster API places machines in.
	// If not set, the cluster has none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`

	// server is the host name or address of the vCenter or engine, from spec or
	// from the identity, for other components such as a cloud controller
	// manager. The controllers do not read it. If not set, no session has been
	// opened yet.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Server string `json:"server,omitempty"`

	// caBundle is a PEM bundle of the CAs that verify server, from spec or from the
	// identity, for the same components. If not set, the CAs of the system are
	// used, or the certificate is pinned.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`

	// thumbprint is the SHA-256 of the only certificate of server to trust, from spec
	// or from the identity, for the same components. If not set, no certificate is
	// pinned.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Thumbprint string `json:"thumbprint,omitempty"`

	// version is the version of the hypervisor, for people. If not set, no session
	// has been opened yet.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// orphanedVMs are VMs on the hypervisor that were created for machines of
	// this cluster which the management cluster does not have, for instance
	// after a restore from a backup. They are never changed or deleted. If not
	// set, there are none.
	// +optional
	OrphanedVMs OrphanedVMs `json:"orphanedVMs,omitempty,omitzero"`
}

// MaxOrphanedVMs is how many orphaned VMs the status lists.
const MaxOrphanedVMs = 20

// InfrastructureCluster's events.
const (
	// OrphanFoundReason: the hypervisor has VMs of this cluster without a machine, for
	// instance after a restore of the management cluster from a backup.
	// status.orphanedVMs lists them. In oVirt a renamed VM is not found unless naming set
	// its name.
	//
	// Action: see docs/day2.md#an-old-backup.
	OrphanFoundReason = "OrphanFound"
)

// OrphanedVMs are VMs without a machine.
// +kubebuilder:validation:MinProperties=1
type OrphanedVMs struct {
	// count is the number of orphaned VMs.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count,omitempty"`

	// vms are the first 20 orphaned VMs by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	VMs []OrphanedVM `json:"vms,omitempty"`
}

// OrphanedVM is a VM without a machine.
type OrphanedVM struct {
	// name is the name of the VM, which is also the name of the machine that it
	// was created for.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// id is the identifier of the VM on the hypervisor.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id,omitempty"`
}

// ClusterInitializationStatus is part of the Cluster API contract.
// +kubebuilder:validation:MinProperties=1
type ClusterInitializationStatus struct {
	// provisioned is true once the hypervisor was reached and the endpoint is
	// known. It never becomes false again.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}
