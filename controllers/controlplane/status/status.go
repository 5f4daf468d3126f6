package status

import (
	"cmp"
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
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/authorities"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/upgrade"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// OwnedConditions are the conditions of a control plane that Report sets. A patch
// overwrites other values of them.
var OwnedConditions = patch.WithOwnedConditions{Conditions: []string{
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
	controlplanev1.AuthoritiesRotatedCondition,
	controlplanev1.RollingOutCondition,
	controlplanev1.ScalingUpCondition,
	controlplanev1.ScalingDownCondition,
	controlplanev1.RemediatingCondition,
	controlplanev1.DeletingCondition,
	fence.ConditionType,
}}

// Report sets the status from the result of the reconcile. Only this method
// sets conditions of the control plane.
func Report(s *scope.Scope, err error) {
	if s.Machines == nil {
		// Nothing was observed, so the status does not change.
		return
	}
	if s.InitializationRecorded {
		s.ControlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	}
	reportReplicas(s)
	for _, condition := range []metav1.Condition{
		fence.Condition(s.Fenced),
		availableCondition(s, err),
		initializedCondition(s),
		certificatesCondition(s),
		etcdCondition(s),
		MembersKnownCondition(s),
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
		upgrade.SettingsCondition(s),
		authorities.Condition(s),
		rollingOutCondition(s),
		scalingUpCondition(s, err),
		scalingDownCondition(s),
		remediatingCondition(s),
		deletingCondition(s, err),
	} {
		if condition.Type != "" {
			conditions.Set(s.ControlPlane, condition)
		}
	}
}

func reportReplicas(s *scope.Scope) {
	status := &s.ControlPlane.Status
	count := func(condition string) *int32 {
		n := int32(0)
		for _, machine := range s.Machines {
			if conditions.IsTrue(machine, condition) {
				n++
			}
		}
		return &n
	}
	reportLastRemediation(s)
	status.Selector = collections.ControlPlaneSelectorForCluster(s.ClusterName).String()
	status.Replicas = ptr.To(int32(len(s.Machines)))
	status.ReadyReplicas = count(clusterv1.MachineReadyCondition)
	status.AvailableReplicas = count(clusterv1.MachineAvailableCondition)
	status.UpToDateReplicas = count(clusterv1.MachineUpToDateCondition)
	if !s.Pending(controlplanev1.AvailableCondition) {
		status.Versions = versions(s.Sorted(), s.Workload.Nodes)
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

func availableCondition(s *scope.Scope, err error) metav1.Condition {
	c := metav1.Condition{Type: controlplanev1.AvailableCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotAvailableReason}
	initialized := ptr.Deref(s.ControlPlane.Status.Initialization.ControlPlaneInitialized, false)
	switch {
	case !s.ControlPlane.DeletionTimestamp.IsZero():
		c.Message = "The control plane is being deleted"
	case s.Certificates.BlocksAll():
		c.Message = certificates.Message(s.Certificates.Err)
	case err != nil && !initialized:
		c.Message = reconcile.Sentence(err)
	case s.Decision.Hold != "":
		c.Message = s.Decision.Hold
	case !initialized && s.Blocked != "":
		c.Message = "Creating machines is blocked: " + s.Blocked
	case !initialized:
		c.Message = awaitingFirst(s.Sorted())
	case s.Workload.Pending:
		return availablePending(s, c)
	case s.Workload.Etcd != nil && !s.Workload.Etcd.Quorum() && (!s.Workload.Answers || !s.Workload.Etcd.Led()):
		c.Message = quorumLost()
	case !s.Workload.Answers:
		c.Message = s.Workload.Problem
	default:
		// An API server that answers reads from etcd, which requires a quorum,
		// even if its members cannot be queried one by one.
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.AvailableReason
	}
	return c
}

// availablePending keeps the condition until the workload cluster was probed. After a
// move to another management cluster there is none to keep.
func availablePending(s *scope.Scope, c metav1.Condition) metav1.Condition {
	if s.Pending(c.Type) {
		return metav1.Condition{}
	}
	c.Status, c.Reason, c.Message = metav1.ConditionUnknown, controlplanev1.AvailableUnknownReason, s.Workload.Problem
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

func initializedCondition(s *scope.Scope) metav1.Condition {
	if ptr.Deref(s.ControlPlane.Status.Initialization.ControlPlaneInitialized, false) {
		return metav1.Condition{
			Type: controlplanev1.InitializedCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.InitializedReason,
		}
	}
	return metav1.Condition{
		Type: controlplanev1.InitializedCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotInitializedReason,
		Message: "kubeadm init has not completed yet",
	}
}

func certificatesCondition(s *scope.Scope) metav1.Condition {
	c := metav1.Condition{Type: controlplanev1.CertificatesAvailableCondition, Status: metav1.ConditionFalse}
	var invalid *pki.InvalidCertificateError
	switch {
	case !s.Certificates.Known:
		if conditions.Has(s.ControlPlane, c.Type) {
			return metav1.Condition{}
		}
		c.Reason, c.Message = controlplanev1.CertificatesNotAvailableReason, "The certificates have not been created yet"
	case s.Certificates.Err == nil:
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.CertificatesAvailableReason
	case errors.As(s.Certificates.Err, &invalid):
		c.Reason, c.Message = controlplanev1.CertificatesInvalidReason, certificates.Message(s.Certificates.Err)
	case errors.Is(s.Certificates.Err, pki.ErrNotFound):
		c.Reason, c.Message = controlplanev1.CertificatesNotAvailableReason, certificates.Message(s.Certificates.Err)
	default:
		reason := pki.VaultReason(s.Certificates.Err)
		c.Reason, c.Message = cmp.Or(reason, controlplanev1.CertificatesInternalErrorReason), certificates.Message(s.Certificates.Err)
	}
	return c
}

func etcdCondition(s *scope.Scope) metav1.Condition {
	c := metav1.Condition{
		Type: controlplanev1.EtcdClusterHealthyCondition, Status: metav1.ConditionUnknown, Reason: controlplanev1.EtcdUnknownReason,
	}
	switch {
	// Problems of external etcd come first: the first machine may fail because of
	// them.
	case len(s.ExternalProblems) == 0 && !ptr.Deref(s.ControlPlane.Status.Initialization.ControlPlaneInitialized, false):
		c.Message = "Waiting for the first machine to initialize the cluster"
	case !s.ControlPlane.DeletionTimestamp.IsZero():
		c.Message = "The control plane is being deleted"
	case s.Pending(c.Type):
		return metav1.Condition{}
	case len(s.ExternalProblems) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, controlplanev1.EtcdNotHealthyReason
		c.Message = strings.Join(s.ExternalProblems, ", ")
	case scope.ExternalEtcd(s) && s.Workload.Answers:
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.EtcdHealthyReason
	case s.Unreachable() && s.Workload.Etcd != nil && len(s.Workload.Etcd.Alarms) > 0:
		// That may be the cause: kube-vip releases an address whose lease it
		// cannot renew.
		c.Status, c.Reason = metav1.ConditionFalse, controlplanev1.EtcdNotHealthyReason
		c.Message = strings.Join(s.Workload.Etcd.Alarms, ", ")
	case s.Unreachable():
		c.Message = s.Workload.Problem
	case s.Workload.Etcd == nil:
		c.Message = s.Workload.EtcdProblem
	default:
		problems := s.Workload.Etcd.Problems(facts.ControlPlaneNodes(s.Workload.Nodes))
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

func machinesCondition(s *scope.Scope, target, source string, because reasons) metav1.Condition {
	machines := s.Sorted()
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

func deletingCondition(s *scope.Scope, err error) metav1.Condition {
	if s.ControlPlane.DeletionTimestamp.IsZero() {
		return metav1.Condition{
			Type: controlplanev1.DeletingCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotDeletingReason,
		}
	}
	c := metav1.Condition{
		Type: controlplanev1.DeletingCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.DeletingReason, Message: s.Decision.Reason,
	}
	if err != nil {
		c.Message = reconcile.Sentence(err)
	}
	return c
}

// MembersKnownCondition reports foreign members. It is empty while etcd does
// not answer, which leaves the condition unchanged.
func MembersKnownCondition(s *scope.Scope) metav1.Condition {
	if s.Workload.Etcd == nil || scope.ExternalEtcd(s) {
		return metav1.Condition{}
	}
	c := metav1.Condition{Type: controlplanev1.EtcdMembersKnownCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.EtcdMembersKnownReason}
	names := scope.ForeignMembers(s)
	if len(names) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, controlplanev1.EtcdForeignMembersReason
	switch decided := s.ControlPlane.Annotations[controlplanev1.ForeignMembersAnnotation]; decided {
	case "":
		c.Message = "No machine is created: " + scope.ForeignRefusal(s)
	default:
		c.Message = fmt.Sprintf("etcd has members without a Machine: %s; the annotation %s is %s",
			strings.Join(names, ", "), controlplanev1.ForeignMembersAnnotation, decided)
	}
	return c
}
