package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InfrastructureMachineTemplate's CapacityKnown condition and
// corresponding reasons.
const (
	// CapacityKnownCondition is true while the capacity of a machine from the template is
	// known. Only cluster-autoscaler needs it, to scale from zero. The reason is
	// WaitingForClusterInfrastructureReady until the cluster is provisioned, and Creating
	// while an item of a content library is deployed for the first machine.
	CapacityKnownCondition = "CapacityKnown"

	// CapacityKnownReason: the capacity is known.
	//
	// Action: none.
	CapacityKnownReason = "CapacityKnown"

	// WaitingForClusterReason: no control plane and no MachineDeployment of a Cluster uses
	// the template yet.
	//
	// Action: wait, or set the label cluster.x-k8s.io/cluster-name on the template.
	WaitingForClusterReason = "WaitingForCluster"
)

// MachineTemplateStatus is the capacity of machines of a template, with which
// cluster-autoscaler scales from zero. It is part of the Cluster API contract.
// +kubebuilder:validation:MinProperties=1
type MachineTemplateStatus struct {
	// conditions has the condition CapacityKnown.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// capacity is the capacity of a node: cpu, memory, ephemeral-storage and
	// devices. If not set, it is not known yet.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// nodeInfo is the architecture and operating system of a node. If not set, they
	// are not known yet.
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
}

// NodeInfo is the architecture and operating system of a node.
// +kubebuilder:validation:MinProperties=1
type NodeInfo struct {
	// architecture is the CPU architecture. It is amd64 if the hypervisor does not
	// report one.
	// +optional
	// +kubebuilder:validation:Enum=amd64;arm64;s390x;ppc64le
	Architecture string `json:"architecture,omitempty"`

	// operatingSystem is the operating system: linux.
	// +optional
	// +kubebuilder:validation:Enum=linux
	OperatingSystem string `json:"operatingSystem,omitempty"`
}
