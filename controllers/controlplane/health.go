package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// machineHealth are the conditions of a machine about the components on its
// node.
var machineHealth = patch.WithOwnedConditions{Conditions: []string{
	controlplanev1.MachineAPIServerPodHealthyCondition,
	controlplanev1.MachineControllerManagerPodHealthyCondition,
	controlplanev1.MachineSchedulerPodHealthyCondition,
	controlplanev1.MachineEtcdPodHealthyCondition,
	controlplanev1.MachineEtcdMemberHealthyCondition,
	controlplanev1.MachineKubeVIPPodHealthyCondition,
}}

// reportHealth sets the health conditions and the certificate expiry of each
// machine.
func (r *Reconciler) reportHealth(ctx context.Context, s *scope) error {
	if !s.initialized || s.workload.Pending {
		return nil
	}
	var errs []error
	for _, machine := range s.sorted() {
		errs = append(errs, r.reportMachineHealth(ctx, s, machine), r.recordExpiry(ctx, s, machine))
	}
	return errors.Join(errs...)
}

func (r *Reconciler) reportMachineHealth(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	before := machine.DeepCopy()
	for _, c := range healthOf(s, machine) {
		conditions.Set(machine, c)
	}
	if s.controlPlane.Spec.Endpoint.GetProvider() != controlplanev1.EndpointProviderKubeVIP {
		conditions.Delete(machine, controlplanev1.MachineKubeVIPPodHealthyCondition)
	}
	if sameConditions(before, machine) {
		return nil
	}
	p, err := patch.NewHelper(before, r.Client)
	if err != nil {
		return fmt.Errorf("preparing patch: %w", err)
	}
	if err := withoutGone(p.Patch(ctx, machine, machineHealth)); err != nil {
		return fmt.Errorf("reporting on machine %s: %w", machine.Name, err)
	}
	return nil
}

// recordExpiry records when the machine's certificates expire, in the annotation
// that Cluster API reads.
func (r *Reconciler) recordExpiry(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	node, config := facts.NodeOf(machine, s.workload.Nodes), s.configs[machine.Name]
	if node == nil || node.CertificatesExpire.IsZero() || config == nil || !config.DeletionTimestamp.IsZero() {
		return nil
	}
	expires := node.CertificatesExpire.UTC().Format(time.RFC3339)
	if config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation] == expires {
		return nil
	}
	was := config.DeepCopy()
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation] = expires
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, config, client.MergeFrom(was))); err != nil {
		return fmt.Errorf("recording when the certificates of machine %s expire: %w", machine.Name, err)
	}
	return nil
}

// certificatesExpire returns when a machine's certificates expire; zero if
// unknown.
func certificatesExpire(s *scope, machine *clusterv1.Machine, node *facts.Node) time.Time {
	if node != nil && !node.CertificatesExpire.IsZero() {
		return node.CertificatesExpire
	}
	if config := s.configs[machine.Name]; config != nil {
		if noted := recordedExpiry(config); !noted.IsZero() {
			return noted
		}
	}
	return machine.Status.CertificatesExpiryDate.Time
}

// certificateLifetime returns the lifetime of the certificates of a new
// machine. It renders the configuration, so it does that only if the spec needs
// it.
func certificateLifetime(s *scope) time.Duration {
	if s.cluster == nil || s.controlPlane.Spec.Rollout.Before.GetWindow() == 0 {
		return 0
	}
	want, err := upgrade(s)
	if err != nil {
		return kubeadm.DefaultLifetime // storedConfiguration reports the error.
	}
	return kubeadm.CertificateLifetime(want.Configuration)
}

func recordedExpiry(config *bootstrapv1.NovaConfig) time.Time {
	noted, err := time.Parse(time.RFC3339, config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation])
	if err != nil {
		return time.Time{}
	}
	return noted
}

// healthOf returns the health conditions of one machine.
func healthOf(s *scope, machine *clusterv1.Machine) []metav1.Condition {
	node := facts.NodeOf(machine, s.workload.Nodes)
	parts := []struct {
		condition string
		of        func(c *facts.Components) facts.Component
	}{
		{controlplanev1.MachineAPIServerPodHealthyCondition, func(c *facts.Components) facts.Component { return c.APIServer }},
		{controlplanev1.MachineControllerManagerPodHealthyCondition, func(c *facts.Components) facts.Component { return c.ControllerManager }},
		{controlplanev1.MachineSchedulerPodHealthyCondition, func(c *facts.Components) facts.Component { return c.Scheduler }},
		{controlplanev1.MachineEtcdPodHealthyCondition, func(c *facts.Components) facts.Component { return c.Etcd }},
	}
	if externalEtcd(s) {
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
	if !externalEtcd(s) {
		all = append(all, memberCondition(s, machine, node))
	}
	if kubeVIP, known := kubeVIPOf(s, machine, node); known {
		c, known := unknownHealth(s, machine, node, controlplanev1.MachineKubeVIPPodHealthyCondition)
		if known {
			c = podCondition(c.Type, kubeVIP)
		}
		all = append(all, c)
	}
	return all
}

// joinTime returns the part of a message about the join timeout.
func joinTime(s *scope) string {
	if externalEtcd(s) {
		// It blocks no other machine, and only a MachineHealthCheck replaces
		// it.
		return ""
	}
	return ". It is replaced if it does not join in time (platform.joinTimeoutSeconds)"
}

// unknownHealth returns the condition while the state of a node is unknown.
func unknownHealth(s *scope, machine *clusterv1.Machine, node *facts.Node, condition string) (c metav1.Condition, known bool) {
	c = metav1.Condition{Type: condition, Status: metav1.ConditionUnknown, Reason: controlplanev1.MachineInspectionFailedReason}
	switch {
	case !s.workload.Answers:
		c.Reason, c.Message = controlplanev1.MachineConnectionDownReason, s.workload.Problem
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
func memberCondition(s *scope, machine *clusterv1.Machine, node *facts.Node) metav1.Condition {
	c := metav1.Condition{
		Type:   controlplanev1.MachineEtcdMemberHealthyCondition,
		Status: metav1.ConditionUnknown, Reason: controlplanev1.MachineInspectionFailedReason,
	}
	if s.workload.Etcd == nil {
		c.Message = s.workload.EtcdProblem
		if !s.workload.Answers {
			c.Reason, c.Message = controlplanev1.MachineConnectionDownReason, s.workload.Problem
		}
		return c
	}
	at := slices.IndexFunc(s.workload.Etcd.Members, func(m etcd.Member) bool { return machineOf(s, m) == machine.Name })
	if at < 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, controlplanev1.MachineEtcdMemberNotHealthyReason, "etcd has no member of this machine"
		if node == nil && machine.DeletionTimestamp.IsZero() {
			c.Status, c.Reason, c.Message = metav1.ConditionUnknown, controlplanev1.MachineInspectionFailedReason, "Waiting for the machine to join etcd"+joinTime(s)
		}
		return c
	}
	member := s.workload.Etcd.Members[at]
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

// componentsCondition summarizes the components on the machines' nodes.
func (s *scope) componentsCondition() metav1.Condition {
	c := metav1.Condition{
		Type:   controlplanev1.ControlPlaneComponentsHealthyCondition,
		Status: metav1.ConditionUnknown, Reason: controlplanev1.ControlPlaneComponentsHealthUnknownReason,
	}
	switch {
	case !ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false):
		c.Message = "Waiting for the first machine to initialize the cluster"
		return c
	case !s.controlPlane.DeletionTimestamp.IsZero():
		c.Message = "The control plane is being deleted"
		return c
	case s.pending(c.Type):
		return metav1.Condition{}
	case !s.workload.Answers:
		c.Message = s.workload.Problem
		return c
	}
	groups := s.componentGroups()
	switch {
	case len(groups) == 0:
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.ControlPlaneComponentsHealthyReason
	case groups[0].failed:
		c.Status, c.Reason = metav1.ConditionFalse, controlplanev1.ControlPlaneComponentsNotHealthyReason
	}
	c.Message = describe(groups)
	return c
}

// endpointCondition reports whether an API server answers at the Cluster's
// endpoint.
func (s *scope) endpointCondition() metav1.Condition {
	c := metav1.Condition{
		Type: controlplanev1.EndpointHealthyCondition, Status: metav1.ConditionUnknown, Reason: controlplanev1.EndpointUnknownReason,
	}
	switch {
	case !ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false):
		c.Message = "Waiting for the first machine to initialize the cluster"
	case !s.controlPlane.DeletionTimestamp.IsZero():
		c.Message = "The control plane is being deleted"
	case !s.workload.Endpoint.Probed:
		if conditions.Has(s.controlPlane, c.Type) {
			return metav1.Condition{}
		}
		c.Message = "The endpoint has not been probed yet"
	case !s.workload.Endpoint.Answers:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, controlplanev1.EndpointNotHealthyReason, s.workload.Endpoint.Problem
		if s.workload.Endpoint.Holder != "" {
			c.Message += ". The last known holder of the address is node " + s.workload.Endpoint.Holder
		}
	default:
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.EndpointHealthyReason
		if s.workload.Endpoint.Holder != "" {
			c.Message = "Node " + s.workload.Endpoint.Holder + " holds the address"
		}
	}
	return c
}
