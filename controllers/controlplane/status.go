package controlplane

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

var ownedConditions = patch.WithOwnedConditions{Conditions: []string{
	clusterv1.PausedCondition,
	controlplanev1.AvailableCondition,
	controlplanev1.InitializedCondition,
	controlplanev1.CertificatesAvailableCondition,
	controlplanev1.EtcdClusterHealthyCondition,
	controlplanev1.EtcdMembersKnownCondition,
	controlplanev1.ControlPlaneComponentsHealthyCondition,
	controlplanev1.EndpointHealthyCondition,
	controlplanev1.MachinesReadyCondition,
	controlplanev1.MachinesUpToDateCondition,
	controlplanev1.SettingsAppliedCondition,
	controlplanev1.RollingOutCondition,
	controlplanev1.ScalingUpCondition,
	controlplanev1.ScalingDownCondition,
	controlplanev1.RemediatingCondition,
	controlplanev1.DeletingCondition,
	fence.ConditionType,
}}

// report sets the status from the result of the reconcile. Only this method
// sets conditions of the control plane.
func report(s *scope, err error) {
	if s.machines == nil {
		// Nothing was observed, so the status does not change.
		return
	}
	reportReplicas(s)
	for _, condition := range []metav1.Condition{
		fence.Condition(s.fenced),
		availableCondition(s, err),
		initializedCondition(s),
		certificatesCondition(s),
		etcdCondition(s),
		membersKnownCondition(s),
		componentsCondition(s),
		endpointCondition(s),
		machinesCondition(s, controlplanev1.MachinesReadyCondition, clusterv1.MachineReadyCondition, reasons{
			metav1.ConditionTrue: controlplanev1.MachinesReadyReason, metav1.ConditionFalse: controlplanev1.MachinesNotReadyReason,
			metav1.ConditionUnknown: controlplanev1.MachinesReadyUnknownReason,
		}),
		machinesCondition(s, controlplanev1.MachinesUpToDateCondition, clusterv1.MachineUpToDateCondition, reasons{
			metav1.ConditionTrue: controlplanev1.MachinesUpToDateReason, metav1.ConditionFalse: controlplanev1.MachinesNotUpToDateReason,
			metav1.ConditionUnknown: controlplanev1.MachinesUpToDateUnknownReason,
		}),
		settingsCondition(s),
		rollingOutCondition(s),
		scalingUpCondition(s, err),
		scalingDownCondition(s),
		remediatingCondition(s),
		deletingCondition(s, err),
	} {
		if condition.Type != "" {
			conditions.Set(s.controlPlane, condition)
		}
	}
}

func reportReplicas(s *scope) {
	status := &s.controlPlane.Status
	count := func(condition string) *int32 {
		n := int32(0)
		for _, machine := range s.machines {
			if conditions.IsTrue(machine, condition) {
				n++
			}
		}
		return &n
	}
	s.reportRemediation()
	status.Selector = collections.ControlPlaneSelectorForCluster(s.clusterName).String()
	status.Replicas = ptr.To(int32(len(s.machines)))
	status.ReadyReplicas = count(clusterv1.MachineReadyCondition)
	status.AvailableReplicas = count(clusterv1.MachineAvailableCondition)
	status.UpToDateReplicas = count(clusterv1.MachineUpToDateCondition)
	if !s.pending(controlplanev1.AvailableCondition) {
		status.Versions = versions(s.sorted(), s.workload.Nodes)
	}
}

// versions counts the versions of the machines' API servers, old to new. The
// observed version of a running API server counts; a machine without an
// observed API server counts with the version that it was created with, so that
// workers do not have to wait for the first one.
func versions(machines []*clusterv1.Machine, nodes []facts.Node) []clusterv1.StatusVersion {
	counts := map[string]int32{}
	for _, machine := range machines {
		v := machine.Spec.Version
		if node := facts.NodeOf(machine, nodes); node != nil && node.APIServer != "" {
			v = node.APIServer
		}
		if _, err := version.ParseSemantic(v); err == nil {
			counts[v]++
		}
	}
	var found []clusterv1.StatusVersion
	for v, n := range counts {
		found = append(found, clusterv1.StatusVersion{Version: v, Replicas: n})
	}
	slices.SortFunc(found, func(a, b clusterv1.StatusVersion) int {
		older, err := version.MustParseSemantic(a.Version).Compare(b.Version)
		if err != nil || older == 0 {
			return strings.Compare(a.Version, b.Version)
		}
		return older
	})
	return found
}

func availableCondition(s *scope, err error) metav1.Condition {
	c := metav1.Condition{Type: controlplanev1.AvailableCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotAvailableReason}
	initialized := ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false)
	switch {
	case !s.controlPlane.DeletionTimestamp.IsZero():
		c.Message = "The control plane is being deleted"
	case s.certificates.blocksAll():
		c.Message = certificatesMessage(s.certificates.err)
	case err != nil && !initialized:
		c.Message = loop.Sentence(err)
	case s.waiting != "":
		c.Message = s.waiting
	case !initialized && s.blocked != "":
		c.Message = "Creating machines is blocked: " + s.blocked
	case !initialized:
		c.Message = awaitingFirst(s.sorted())
	case s.workload.Pending:
		return availablePending(s, c)
	case s.workload.Etcd != nil && !s.workload.Etcd.Quorum() && (!s.workload.Answers || !s.workload.Etcd.Led()):
		c.Message = quorumLost()
	case !s.workload.Answers:
		c.Message = s.workload.Problem
	default:
		// An API server that answers reads from etcd, which requires a quorum,
		// even if its members cannot be queried one by one.
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.AvailableReason
	}
	return c
}

// availablePending keeps the condition until the workload cluster was probed. After a
// move to another management cluster there is none to keep.
func availablePending(s *scope, c metav1.Condition) metav1.Condition {
	if s.pending(c.Type) {
		return metav1.Condition{}
	}
	c.Status, c.Reason, c.Message = metav1.ConditionUnknown, controlplanev1.AvailableUnknownReason, s.workload.Problem
	return c
}

// awaitingFirst returns the machine that has to initialize the cluster, and why
// that machine itself waits.
func awaitingFirst(machines []*clusterv1.Machine) string {
	const text = "Waiting for the first machine to initialize the cluster"
	for _, machine := range machines {
		for _, of := range []string{clusterv1.MachineBootstrapConfigReadyCondition, clusterv1.MachineInfrastructureReadyCondition} {
			if c := conditions.Get(machine, of); c != nil && c.Status == metav1.ConditionFalse && c.Message != "" {
				return fmt.Sprintf("%s; Machine %s: %s", text, machine.Name, c.Message)
			}
		}
	}
	return text
}

// quorumLost returns the state of etcd and how to recover.
func quorumLost() string {
	return "Fewer than a majority of etcd's voting members answer. " + plan.Recovery
}

func initializedCondition(s *scope) metav1.Condition {
	if ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false) {
		return metav1.Condition{
			Type: controlplanev1.InitializedCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.InitializedReason,
		}
	}
	return metav1.Condition{
		Type: controlplanev1.InitializedCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotInitializedReason,
		Message: "kubeadm init has not completed yet",
	}
}

func certificatesCondition(s *scope) metav1.Condition {
	c := metav1.Condition{Type: controlplanev1.CertificatesAvailableCondition, Status: metav1.ConditionFalse}
	var invalid *pki.InvalidCertificateError
	switch {
	case !s.certificates.known:
		if conditions.Has(s.controlPlane, c.Type) {
			return metav1.Condition{}
		}
		c.Reason, c.Message = controlplanev1.CertificatesNotAvailableReason, "The certificates have not been created yet"
	case s.certificates.err == nil:
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.CertificatesAvailableReason
	case errors.As(s.certificates.err, &invalid):
		c.Reason, c.Message = controlplanev1.CertificatesInvalidReason, certificatesMessage(s.certificates.err)
	case errors.Is(s.certificates.err, pki.ErrNotFound):
		c.Reason, c.Message = controlplanev1.CertificatesNotAvailableReason, certificatesMessage(s.certificates.err)
	default:
		c.Reason, c.Message = controlplanev1.CertificatesInternalErrorReason, certificatesMessage(s.certificates.err)
	}
	return c
}

// certificatesMessage returns the problem with the certificates.
func certificatesMessage(err error) string {
	if errors.Is(err, pki.ErrNotFound) {
		return "A certificate Secret of the running cluster is missing, restore it from a backup: " + err.Error()
	}
	return loop.Sentence(err)
}

func etcdCondition(s *scope) metav1.Condition {
	c := metav1.Condition{
		Type: controlplanev1.EtcdClusterHealthyCondition, Status: metav1.ConditionUnknown, Reason: controlplanev1.EtcdUnknownReason,
	}
	switch {
	// Problems of external etcd come first: the first machine may fail because of
	// them.
	case len(s.externalProblems) == 0 && !ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false):
		c.Message = "Waiting for the first machine to initialize the cluster"
	case !s.controlPlane.DeletionTimestamp.IsZero():
		c.Message = "The control plane is being deleted"
	case s.pending(c.Type):
		return metav1.Condition{}
	case len(s.externalProblems) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, controlplanev1.EtcdNotHealthyReason
		c.Message = strings.Join(s.externalProblems, ", ")
	case externalEtcd(s) && s.workload.Answers:
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.EtcdHealthyReason
	case s.unreachable() && s.workload.Etcd != nil && len(s.workload.Etcd.Alarms) > 0:
		// That may be the cause: kube-vip releases an address whose lease it
		// cannot renew.
		c.Status, c.Reason = metav1.ConditionFalse, controlplanev1.EtcdNotHealthyReason
		c.Message = strings.Join(s.workload.Etcd.Alarms, ", ")
	case s.unreachable():
		c.Message = s.workload.Problem
	case s.workload.Etcd == nil:
		c.Message = s.workload.EtcdProblem
	default:
		problems := s.workload.Etcd.Problems(facts.ControlPlaneNodes(s.workload.Nodes))
		if len(problems) == 0 {
			c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.EtcdHealthyReason
			return c
		}
		c.Status, c.Reason = metav1.ConditionFalse, controlplanev1.EtcdNotHealthyReason
		c.Message = strings.Join(problems, ", ")
	}
	return c
}

// reasons are the reasons of a summary condition by its status.
type reasons map[metav1.ConditionStatus]string

func machinesCondition(s *scope, target, source string, because reasons) metav1.Condition {
	machines := s.sorted()
	if len(machines) == 0 {
		return metav1.Condition{Type: target, Status: metav1.ConditionTrue, Reason: controlplanev1.MachinesNoReplicasReason}
	}
	c, err := conditions.NewAggregateCondition(machines, source, conditions.TargetConditionType(target))
	if err != nil {
		return metav1.Condition{
			Type: target, Status: metav1.ConditionUnknown, Reason: controlplanev1.MachinesInternalErrorReason,
			Message: "The machines' conditions could not be summarized",
		}
	}
	c.Reason = because[c.Status]
	return *c
}

func deletingCondition(s *scope, err error) metav1.Condition {
	if s.controlPlane.DeletionTimestamp.IsZero() {
		return metav1.Condition{
			Type: controlplanev1.DeletingCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotDeletingReason,
		}
	}
	c := metav1.Condition{
		Type: controlplanev1.DeletingCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.DeletingReason, Message: s.deleting,
	}
	if err != nil {
		c.Message = loop.Sentence(err)
	}
	return c
}
