package v1beta2

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MachineHookAnnotation stands on every control plane Machine. Cluster API's
// deletion of it stops there after drain and volumes, until the machine's
// member of etcd is removed.
const MachineHookAnnotation = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/nova-control-plane"

const (
	// JoinedAnnotation stands on a control plane Machine once it was a member
	// of etcd, which is stored before its member is removed: it never joins
	// again.
	JoinedAnnotation = "controlplane.cluster.x-k8s.io/nova-etcd-joined"
	// RemediationAnnotation stands on a NovaControlPlane and holds the
	// remediation that was begun last. It is stored before the machine is
	// deleted, so that a retry is counted once whatever happens.
	RemediationAnnotation = "controlplane.cluster.x-k8s.io/nova-remediation"
	// ReplacesAnnotation stands on a control plane Machine that was made for a
	// remediated one, and names that.
	ReplacesAnnotation = "controlplane.cluster.x-k8s.io/nova-replaces"
	// SkipRedundancyAnnotation is set on a control plane Machine by an
	// administrator. The Machine is then removed before others can stand in for
	// its member of etcd and its API server. etcd's quorum is kept all the same.
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

// MachineSafeToDeleteCondition stands on a control plane Machine that is being
// deleted: it is true once etcd does not need the machine's host any more.
const MachineSafeToDeleteCondition = "SafeToDelete"

const (
	// MachineSafeToDeleteReason: the host may go.
	MachineSafeToDeleteReason = "SafeToDelete"
	// MachineNotSafeToDeleteReason: it has to stay, the message says why.
	MachineNotSafeToDeleteReason = "NotSafeToDelete"
)
