package v1beta2

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// SkipCoreDNSAnnotation is set on a NovaControlPlane if CoreDNS of the workload
	// cluster is managed elsewhere. An upgrade does not change it then.
	SkipCoreDNSAnnotation = "controlplane.cluster.x-k8s.io/skip-coredns"
	// SkipKubeProxyAnnotation is the same for kube-proxy.
	SkipKubeProxyAnnotation = "controlplane.cluster.x-k8s.io/skip-kube-proxy"
)

// Conditions of a control plane Machine hold the health of the components on its
// node. They have the names of KubeadmControlPlane.
const (
	MachineAPIServerPodHealthyCondition         = "APIServerPodHealthy"
	MachineControllerManagerPodHealthyCondition = "ControllerManagerPodHealthy"
	MachineSchedulerPodHealthyCondition         = "SchedulerPodHealthy"
	MachineEtcdPodHealthyCondition              = "EtcdPodHealthy"
	MachineEtcdMemberHealthyCondition           = "EtcdMemberHealthy"
	// MachineKubeVIPPodHealthyCondition has no counterpart in KubeadmControlPlane. It
	// is set once a pod of kube-vip was found.
	MachineKubeVIPPodHealthyCondition = "KubeVIPPodHealthy"
)

const (
	// MachinePodRunningReason: the pod is running and ready.
	MachinePodRunningReason = "Running"
	// MachinePodProvisioningReason: the pod is starting.
	MachinePodProvisioningReason = "Provisioning"
	// MachinePodDoesNotExistReason: the pod does not exist.
	MachinePodDoesNotExistReason = "DoesNotExist"
	// MachinePodFailedReason: the pod has stopped, or restarts repeatedly.
	MachinePodFailedReason = "Failed"
	// MachinePodDeletingReason: the pod is being deleted.
	MachinePodDeletingReason = "Deleting"
	// MachineInspectionFailedReason: the Node does not exist, or its kubelet has stopped
	// posting status.
	MachineInspectionFailedReason = clusterv1.InspectionFailedReason
	// MachineConnectionDownReason: the API server of the workload cluster does not
	// respond.
	MachineConnectionDownReason = clusterv1.ConnectionDownReason
	// MachineEtcdMemberHealthyReason: the member responds, votes and has a leader.
	MachineEtcdMemberHealthyReason = "Healthy"
	// MachineEtcdMemberNotHealthyReason: the member does not respond, does not vote or
	// has no leader.
	MachineEtcdMemberNotHealthyReason = "NotHealthy"
)

// ControlPlaneComponentsHealthyCondition is true while API server, controller
// manager, scheduler, etcd and kube-vip run on every machine.
const ControlPlaneComponentsHealthyCondition = "ControlPlaneComponentsHealthy"

const (
	// ControlPlaneComponentsHealthyReason: all components run.
	ControlPlaneComponentsHealthyReason = "Healthy"
	// ControlPlaneComponentsNotHealthyReason: the components in the message do not run.
	ControlPlaneComponentsNotHealthyReason = "NotHealthy"
	// ControlPlaneComponentsHealthUnknownReason: the health of some is unknown.
	ControlPlaneComponentsHealthUnknownReason = "HealthUnknown"
)

// EndpointHealthyCondition is true while an API server responds at the control plane
// endpoint of the Cluster. It does not include the health of etcd.
const EndpointHealthyCondition = "EndpointHealthy"

const (
	// EndpointHealthyReason: an API server responds. With kube-vip the message contains
	// the node that has the address.
	EndpointHealthyReason = "Healthy"
	// EndpointNotHealthyReason: no API server responds.
	EndpointNotHealthyReason = "NotHealthy"
	// EndpointUnknownReason: the endpoint has not been probed yet.
	EndpointUnknownReason = "HealthUnknown"
)
