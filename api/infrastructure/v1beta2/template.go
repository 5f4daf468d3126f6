package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CapacityKnownCondition of a machine template is true while its capacity is known,
// which cluster-autoscaler needs to scale from zero.
const CapacityKnownCondition = "CapacityKnown"

// Reasons of CapacityKnown. Drivers add their own for failures whose cause they
// understand.
const (
	// CapacityKnownReason: the capacity is known.
	CapacityKnownReason = "CapacityKnown"
	// WaitingForClusterReason: nobody says yet which cluster the template is
	// for.
	WaitingForClusterReason = "WaitingForCluster"
)

// MachineTemplateStatus tells what machines made from a template will have, so
// that cluster-autoscaler can scale from zero. It is part of the Cluster API
// contract.
// +kubebuilder:validation:MinProperties=1
type MachineTemplateStatus struct {
	// conditions is CapacityKnown. Empty until the first reconcile.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// capacity is what a node will have: cpu, memory, ephemeral-storage and
	// devices. Empty until it is known.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// nodeInfo is what a node will report of itself. Empty until it is known.
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
}

// NodeInfo is what a node reports of itself.
// +kubebuilder:validation:MinProperties=1
type NodeInfo struct {
	// architecture is the processor's, amd64 where the hypervisor does not say.
	// +optional
	// +kubebuilder:validation:Enum=amd64;arm64;s390x;ppc64le
	Architecture string `json:"architecture,omitempty"`

	// operatingSystem is linux.
	// +optional
	// +kubebuilder:validation:Enum=linux
	OperatingSystem string `json:"operatingSystem,omitempty"`
}
