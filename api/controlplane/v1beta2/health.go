package v1beta2

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// SkipCoreDNSAnnotation stands on a NovaControlPlane whose tenant's CoreDNS
	// is somebody else's: an upgrade leaves it alone.
	SkipCoreDNSAnnotation = "controlplane.cluster.x-k8s.io/skip-coredns"
	// SkipKubeProxyAnnotation says the same of kube-proxy.
	SkipKubeProxyAnnotation = "controlplane.cluster.x-k8s.io/skip-kube-proxy"
)

// Conditions of a control plane Machine say how what kubeadm runs on its node
// is. They have the names that KubeadmControlPlane gives them.
const (
	MachineAPIServerPodHealthyCondition         = "APIServerPodHealthy"
	MachineControllerManagerPodHealthyCondition = "ControllerManagerPodHealthy"
	MachineSchedulerPodHealthyCondition         = "SchedulerPodHealthy"
	MachineEtcdPodHealthyCondition              = "EtcdPodHealthy"
	MachineEtcdMemberHealthyCondition           = "EtcdMemberHealthy"
	// MachineKubeVIPPodHealthyCondition is ours: KubeadmControlPlane knows no
	// kube-vip. It is there once a pod was seen that says what it is.
	MachineKubeVIPPodHealthyCondition = "KubeVIPPodHealthy"
)

const (
	// MachinePodRunningReason: the pod runs and is ready.
	MachinePodRunningReason = "Running"
	// MachinePodProvisioningReason: it starts.
	MachinePodProvisioningReason = "Provisioning"
	// MachinePodDoesNotExistReason: there is none.
	MachinePodDoesNotExistReason = "DoesNotExist"
	// MachinePodFailedReason: it runs no more, or is started again and again.
	MachinePodFailedReason = "Failed"
	// MachinePodDeletingReason: it is being taken away.
	MachinePodDeletingReason = "Deleting"
	// MachineInspectionFailedReason: its node is not there or its kubelet has
	// not been heard of.
	MachineInspectionFailedReason = clusterv1.InspectionFailedReason
	// MachineConnectionDownReason: the tenant's API server does not answer.
	MachineConnectionDownReason = clusterv1.ConnectionDownReason
	// MachineEtcdMemberHealthyReason: the member answers, votes and sees a leader.
	MachineEtcdMemberHealthyReason = "Healthy"
	// MachineEtcdMemberNotHealthyReason: it does not, the message says what it lacks.
	MachineEtcdMemberNotHealthyReason = "NotHealthy"
)

// ControlPlaneComponentsHealthyCondition is true while API server, controller
// manager, scheduler, etcd and kube-vip run on every machine.
const ControlPlaneComponentsHealthyCondition = "ControlPlaneComponentsHealthy"

const (
	// ControlPlaneComponentsHealthyReason: they run.
	ControlPlaneComponentsHealthyReason = "Healthy"
	// ControlPlaneComponentsNotHealthyReason: some do not, the message says which.
	ControlPlaneComponentsNotHealthyReason = "NotHealthy"
	// ControlPlaneComponentsHealthUnknownReason: it is not known of some.
	ControlPlaneComponentsHealthUnknownReason = "HealthUnknown"
)

// EndpointHealthyCondition is true while an API server answers at the address
// that the Cluster names. It says nothing of etcd behind it.
const EndpointHealthyCondition = "EndpointHealthy"

const (
	// EndpointHealthyReason: one answers. With kube-vip the message names the
	// node that holds the address.
	EndpointHealthyReason = "Healthy"
	// EndpointNotHealthyReason: none answers, the message says why.
	EndpointNotHealthyReason = "NotHealthy"
	// EndpointUnknownReason: nobody has asked yet.
	EndpointUnknownReason = "HealthUnknown"
)
