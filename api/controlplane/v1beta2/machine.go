package v1beta2

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MachineHookAnnotation is set on every control plane Machine. Cluster API's deletion
// of the Machine stops there, after drain and volume detachment, until the etcd member
// of the machine is removed.
const MachineHookAnnotation = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/nova-control-plane"

const (
	// JoinedAnnotation is set on a control plane Machine once it was an etcd member. It
	// is stored before the member is removed: the machine never joins again.
	JoinedAnnotation = "controlplane.cluster.x-k8s.io/nova-etcd-joined"
	// RemediationAnnotation is set on a NovaControlPlane and holds the last
	// remediation. It is stored before the machine is deleted, so that a retry is
	// counted exactly once.
	RemediationAnnotation = "controlplane.cluster.x-k8s.io/nova-remediation"
	// ReplacesAnnotation is set on a control plane Machine that replaces a remediated
	// Machine, and holds the name of the latter.
	ReplacesAnnotation = "controlplane.cluster.x-k8s.io/nova-replaces"
	// SkipRedundancyAnnotation is set on a control plane Machine by an
	// administrator. The Machine is then removed before others replace its etcd member
	// and its API server. The quorum of etcd is still kept.
	SkipRedundancyAnnotation = "controlplane.cluster.x-k8s.io/skip-redundancy"
)

// ReadinessGates returns the conditions that Ready of a control plane Machine
// waits for, as in KubeadmControlPlane. With external etcd the machine has no
// member.
func ReadinessGates(externalEtcd bool) []clusterv1.MachineReadinessGate {
	gates := []clusterv1.MachineReadinessGate{
		{ConditionType: MachineAPIServerPodHealthyCondition},
		{ConditionType: MachineControllerManagerPodHealthyCondition},
		{ConditionType: MachineSchedulerPodHealthyCondition},
	}
	if externalEtcd {
		return gates
	}
	return append(gates,
		clusterv1.MachineReadinessGate{ConditionType: MachineEtcdPodHealthyCondition},
		clusterv1.MachineReadinessGate{ConditionType: MachineEtcdMemberHealthyCondition})
}

// Machine's SafeToDelete condition and corresponding reasons.
const (
	// MachineSafeToDeleteCondition is set on a control plane Machine that is being
	// deleted. It is true once the control plane does not need the VM anymore.
	MachineSafeToDeleteCondition = "SafeToDelete"

	// MachineSafeToDeleteReason: the VM can be deleted.
	//
	// Action: none.
	MachineSafeToDeleteReason = "SafeToDelete"

	// MachineNotSafeToDeleteReason: etcd, the other API servers or the endpoint still need
	// the host; the message gives the cause. The endpoint holds a machine for at most 10
	// minutes.
	//
	// Action: usually none. If the machine waits for other machines to replace it, see
	// docs/controlplane.md#redundancy; for the endpoint, docs/controlplane.md#endpoint;
	// without a quorum, docs/etcd.md#it-is-down.
	MachineNotSafeToDeleteReason = "NotSafeToDelete"
)
