package status

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// MachineHealth returns the health conditions of one machine.
func MachineHealth(s *scope.Scope, machine *clusterv1.Machine) []metav1.Condition {
	node := facts.NodeOf(machine, s.Workload.Nodes)
	parts := []struct {
		condition string
		of        func(c *facts.Components) facts.Component
	}{
		{controlplanev1.MachineAPIServerPodHealthyCondition, func(c *facts.Components) facts.Component { return c.APIServer }},
		{controlplanev1.MachineControllerManagerPodHealthyCondition, func(c *facts.Components) facts.Component { return c.ControllerManager }},
		{controlplanev1.MachineSchedulerPodHealthyCondition, func(c *facts.Components) facts.Component { return c.Scheduler }},
		{controlplanev1.MachineEtcdPodHealthyCondition, func(c *facts.Components) facts.Component { return c.Etcd }},
	}
	if scope.ExternalEtcd(s) {
		parts = parts[:3]
	}
	var all []metav1.Condition
	for _, part := range parts {
		c, known := unknownHealth(s, machine, node, part.condition)
		if known {
			c = podCondition(part.condition, part.of(&node.Components))
		}
		all = append(all, c)
	}
	if !scope.ExternalEtcd(s) {
		all = append(all, memberCondition(s, machine, node))
	}
	if kubeVIP, known := input.KubeVIPOf(s, machine, node); known {
		c, known := unknownHealth(s, machine, node, controlplanev1.MachineKubeVIPPodHealthyCondition)
		if known {
			c = podCondition(c.Type, kubeVIP)
		}
		all = append(all, c)
	}
	return all
}

// joinTime returns the part of a message about the join timeout.
func joinTime(s *scope.Scope) string {
	if scope.ExternalEtcd(s) {
		// It blocks no other machine, and only a MachineHealthCheck replaces
		// it.
		return ""
	}
	return ". It is replaced if it does not join in time (platform.joinTimeoutSeconds)"
}

// unknownHealth returns the condition while the state of a node is unknown.
func unknownHealth(s *scope.Scope, machine *clusterv1.Machine, node *facts.Node, condition string) (c metav1.Condition, known bool) {
	c = metav1.Condition{Type: condition, Status: metav1.ConditionUnknown, Reason: controlplanev1.MachineInspectionFailedReason}
	switch {
	case !s.Workload.Answers:
		c.Reason, c.Message = controlplanev1.MachineConnectionDownReason, s.Workload.Problem
	case node == nil && !machine.DeletionTimestamp.IsZero():
		c.Reason, c.Message = controlplanev1.MachinePodDeletingReason, "The machine is being deleted and has no node"
	case node == nil:
		c.Message = "Waiting for the machine to become a node" + joinTime(s)
	case node.Unreachable:
		c.Message = "The kubelet on node " + node.Name + " has stopped posting status"
	default:
		return c, true
	}
	return c, false
}

func podCondition(condition string, component facts.Component) metav1.Condition {
	c := metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: string(component.State), Message: component.Message}
	switch component.State {
	case facts.Running:
		c.Status = metav1.ConditionTrue
	case facts.Missing:
		c.Reason, c.Message = controlplanev1.MachinePodDoesNotExistReason, "The pod does not exist"
	case facts.Deleting:
		c.Message = "The pod is being deleted"
	case facts.Provisioning, facts.Failed:
	}
	return c
}

// memberCondition returns the health of the machine's etcd member. etcd may
// answer while the API server does not.
func memberCondition(s *scope.Scope, machine *clusterv1.Machine, node *facts.Node) metav1.Condition {
	c := metav1.Condition{
		Type:   controlplanev1.MachineEtcdMemberHealthyCondition,
		Status: metav1.ConditionUnknown, Reason: controlplanev1.MachineInspectionFailedReason,
	}
	if s.Workload.Etcd == nil {
		c.Message = s.Workload.EtcdProblem
		if !s.Workload.Answers {
			c.Reason, c.Message = controlplanev1.MachineConnectionDownReason, s.Workload.Problem
		}
		return c
	}
	at := slices.IndexFunc(s.Workload.Etcd.Members, func(m etcd.Member) bool { return scope.MachineOf(s, m) == machine.Name })
	if at < 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, controlplanev1.MachineEtcdMemberNotHealthyReason, "etcd has no member of this machine"
		if node == nil && machine.DeletionTimestamp.IsZero() {
			c.Status, c.Reason, c.Message = metav1.ConditionUnknown, controlplanev1.MachineInspectionFailedReason, "Waiting for the machine to join etcd"+joinTime(s)
		}
		return c
	}
	member := s.Workload.Etcd.Members[at]
	c.Status, c.Reason = metav1.ConditionFalse, controlplanev1.MachineEtcdMemberNotHealthyReason
	switch {
	case member.Name == "":
		c.Message = "The member was added and has not started"
	case member.Learner:
		c.Message = "The member is a learner and does not vote yet"
	case !member.Answers:
		c.Message = "The member does not answer, or sees no leader"
	case len(member.Alarms) > 0:
		c.Message = "Raised alarms: " + strings.Join(member.Alarms, ", ")
	default:
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.MachineEtcdMemberHealthyReason
	}
	return c
}
