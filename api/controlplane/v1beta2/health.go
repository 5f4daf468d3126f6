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

// Machine's APIServerPodHealthy, ControllerManagerPodHealthy, SchedulerPodHealthy,
// EtcdPodHealthy and KubeVIPPodHealthy conditions and corresponding reasons.
const (
	// MachineAPIServerPodHealthyCondition is true while the static pod of the API server
	// runs and is ready. Ready of the Machine depends on it.
	MachineAPIServerPodHealthyCondition = "APIServerPodHealthy"

	// MachineControllerManagerPodHealthyCondition is the same for the controller manager. Ready of
	// the Machine depends on it.
	MachineControllerManagerPodHealthyCondition = "ControllerManagerPodHealthy"

	// MachineSchedulerPodHealthyCondition is the same for the scheduler. Ready of the Machine
	// depends on it.
	MachineSchedulerPodHealthyCondition = "SchedulerPodHealthy"

	// MachineEtcdPodHealthyCondition is the same for etcd. Ready of the Machine depends on it. The
	// condition does not exist with external etcd.
	MachineEtcdPodHealthyCondition = "EtcdPodHealthy"

	// MachineKubeVIPPodHealthyCondition is the same for kube-vip. It has no counterpart in
	// KubeadmControlPlane, and is set once a pod of kube-vip was found. Ready does not
	// depend on it.
	MachineKubeVIPPodHealthyCondition = "KubeVIPPodHealthy"

	// MachinePodRunningReason: the pod is running and ready.
	//
	// Action: none.
	MachinePodRunningReason = "Running"

	// MachinePodProvisioningReason: the pod is starting.
	//
	// Action: wait. If the reason stays, read the log of the pod on the host
	// (`crictl logs`).
	MachinePodProvisioningReason = "Provisioning"

	// MachinePodDoesNotExistReason: the pod does not exist.
	//
	// Action: check the kubelet of the node and /etc/kubernetes/manifests.
	MachinePodDoesNotExistReason = "DoesNotExist"

	// MachinePodFailedReason: the pod has stopped, or restarts repeatedly.
	//
	// Action: read the log of the pod on the host (`crictl logs`). For kube-vip, check
	// spec.endpoint.kubeVIP of the NovaControlPlane for an image that is not in the
	// registry, or an interface that the machine does not have.
	MachinePodFailedReason = "Failed"

	// MachinePodDeletingReason: the pod is being deleted, or the machine is being deleted
	// and has no node.
	//
	// Action: wait.
	MachinePodDeletingReason = "Deleting"

	// MachineInspectionFailedReason: the machine has no Node yet, or its kubelet has
	// stopped posting status.
	//
	// Action: check the host. If the machine has no Node, see
	// docs/troubleshooting.md#a-machine-has-a-vm-and-no-node.
	MachineInspectionFailedReason = clusterv1.InspectionFailedReason

	// MachineConnectionDownReason: the API server of the workload cluster does not
	// respond.
	//
	// Action: check the condition Available of the NovaControlPlane.
	MachineConnectionDownReason = clusterv1.ConnectionDownReason
)

// Machine's EtcdMemberHealthy condition and corresponding reasons.
const (
	// MachineEtcdMemberHealthyCondition is true while the member of etcd on the machine
	// responds, votes and has a leader. Ready of the Machine depends on it. The condition
	// is unknown with the reasons ConnectionDown and InspectionFailed, as those of the
	// pods. It does not exist with external etcd.
	MachineEtcdMemberHealthyCondition = "EtcdMemberHealthy"

	// MachineEtcdMemberHealthyReason: the member responds, votes and has a leader.
	//
	// Action: none.
	MachineEtcdMemberHealthyReason = "Healthy"

	// MachineEtcdMemberNotHealthyReason: the member does not respond, does not vote, has
	// no leader or has an alarm, or etcd has no member of this machine.
	//
	// Action: none while the machine joins or is replaced. Otherwise check its host, or
	// delete the Machine; alarms: docs/controlplane.md#alarms-of-etcd.
	MachineEtcdMemberNotHealthyReason = "NotHealthy"
)

// NovaControlPlane's ControlPlaneComponentsHealthy condition and corresponding reasons.
const (
	// ControlPlaneComponentsHealthyCondition is true while API server, controller manager,
	// scheduler, etcd and kube-vip run on every machine. Available does not depend on it.
	ControlPlaneComponentsHealthyCondition = "ControlPlaneComponentsHealthy"

	// ControlPlaneComponentsHealthyReason: all components run.
	//
	// Action: none.
	ControlPlaneComponentsHealthyReason = "Healthy"

	// ControlPlaneComponentsNotHealthyReason: a static pod fails. The message lists the
	// pods by machine, and groups machines with the same problems.
	//
	// Action: check the condition of the pod on the Machine that the message names.
	ControlPlaneComponentsNotHealthyReason = "NotHealthy"

	// ControlPlaneComponentsHealthUnknownReason: a kubelet does not post its status, a
	// machine is not a node yet, or the API server does not respond.
	//
	// Action: none while a machine joins. Otherwise check the host that the message names.
	ControlPlaneComponentsHealthUnknownReason = "HealthUnknown"
)

// NovaControlPlane's EndpointHealthy condition and corresponding reasons.
const (
	// EndpointHealthyCondition is true while an API server responds at the control plane
	// endpoint of the Cluster. It does not include the health of etcd.
	EndpointHealthyCondition = "EndpointHealthy"

	// EndpointHealthyReason: an API server responds. With kube-vip the message contains
	// the node that has the address.
	//
	// Action: none.
	EndpointHealthyReason = "Healthy"

	// EndpointNotHealthyReason: no API server responds at the endpoint. The message names
	// the last known holder of the address.
	//
	// Action: with kube-vip, check its log on that node, look for another host with the
	// same address (`arping -D`), and check the switch. With an endpoint of provider
	// External, check the load balancer and its health checks.
	EndpointNotHealthyReason = "NotHealthy"

	// EndpointUnknownReason: the endpoint has not been probed yet, or the control plane is
	// not initialized.
	//
	// Action: wait.
	EndpointUnknownReason = "HealthUnknown"
)
