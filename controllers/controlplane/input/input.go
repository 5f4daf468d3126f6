package input

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// Of returns the observed and the desired state for plan. It only uses the
// scope.
func Of(s *scope.Scope, now time.Time) plan.Input {
	spec := &s.ControlPlane.Spec
	in := plan.Input{
		Now:                 now,
		Replicas:            int(s.ControlPlane.GetReplicas()),
		Version:             spec.Version,
		Strategy:            plan.Strategy(spec.Rollout.Strategy.GetType()),
		MaxSurge:            int(spec.Rollout.Strategy.RollingUpdate.GetMaxSurge()),
		InPlace:             plan.InPlace(spec.Rollout.GetInPlace()),
		RolloutPaused:       spec.Rollout.IsPaused(),
		RolloutAfter:        spec.Rollout.GetAfter(),
		ExpiryWindow:        spec.Rollout.Before.GetWindow(),
		CertificateLifetime: s.Lifetime,
		Limits:              limits(spec),
		Initialized:         s.Initialized,
		InitUnknown:         InitUnknown(&s.Workload, now),
		ExternalEtcd:        scope.ExternalEtcd(s),
		LockHolder:          s.Lock.Holder,
		LockSince:           s.Lock.Since,
		KubeadmVersion:      s.Workload.KubeadmVersion,
		JoinBlocked:         cmp.Or(s.JoinBlocked, s.UpgradeWaits, topologyRefusal(s.Cluster, spec.Version), scope.ForeignRefusal(s)),
		OldestKubelet:       s.Workload.OldestKubelet,
		LastRemediation:     LastRemediation(s.ControlPlane),
		Requirements:        s.Requirements,
		Restore:             s.Restore,
		Endpoint:            inputEndpoint(s),
	}
	for _, machine := range s.Sorted() {
		in.Machines = append(in.Machines, Machine(s, machine))
	}
	in.Etcd, in.EtcdProblem = inputEtcd(s, now)
	return in
}

// Changes returns the changes of a rollout.
func Changes(s *scope.Scope) []plan.Change { return plan.Rollout(Of(s, s.At)) }

// topologyRefusal returns why no machine of the current version is created: the
// topology of the Cluster is about to change the version, and the machine would
// be replaced at once. An upgrade over several minor versions has steps, which
// the topology controller writes into an annotation. It is empty otherwise.
func topologyRefusal(cluster *clusterv1.Cluster, version string) string {
	if cluster == nil {
		return ""
	}
	next := cmp.Or(cluster.Annotations[clusterv1.ClusterTopologyUpgradeStepAnnotation], cluster.Spec.Topology.Version)
	if !cluster.Spec.Topology.IsDefined() || next == version || cluster.Spec.Topology.Version == version {
		return ""
	}
	return fmt.Sprintf("the topology of the Cluster is about to change the version from %s to %s", version, next)
}

func limits(spec *controlplanev1.NovaControlPlaneSpec) plan.Limits {
	return plan.Limits{
		MaxRetry:         int(spec.Remediation.GetMaxRetry()),
		RetryPeriod:      spec.Remediation.GetRetryPeriod(),
		MinHealthyPeriod: spec.Remediation.GetMinHealthyPeriod(),
		JoinTimeout:      spec.Platform.GetJoinTimeout(),
		LearnerGrace:     timelimits.Grace,
		RestoreTimeout:   timelimits.RestoreTimeout,
		RestorePause:     timelimits.Grace,

		EndpointMoveTimeout: timelimits.LongGrace,
		UpdateTimeout:       timelimits.LongGrace,
	}
}

// Machine returns a machine as the decision sees it.
func Machine(s *scope.Scope, machine *clusterv1.Machine) plan.Machine {
	node := facts.NodeOf(machine, s.Workload.Nodes)
	_, deleteFirst := machine.Annotations[clusterv1.DeleteMachineAnnotation]
	_, joined := machine.Annotations[controlplanev1.JoinedAnnotation]
	_, hooked := machine.Annotations[controlplanev1.MachineHookAnnotation]
	_, skipRedundancy := machine.Annotations[controlplanev1.SkipRedundancyAnnotation]
	deleting := !machine.DeletionTimestamp.IsZero()
	booted := machine.Spec.Bootstrap.DataSecretName != nil
	updating := scope.Updating(machine)
	since, progress := updateProgress(machine)
	return plan.Machine{
		Updating:           updating,
		UpdateBegun:        updating && scope.UpdateBegun(machine),
		UpdatingSince:      since,
		UpdateProgress:     progress,
		NeedReplacement:    s.NeedReplacement[machine.Name],
		Name:               machine.Name,
		Created:            CreatedAt(machine),
		Started:            startedAt(s, machine),
		JoinBy:             joinBy(s, machine),
		Version:            machine.Spec.Version,
		Domain:             machine.Spec.FailureDomain,
		Role:               role(s, machine, booted),
		Booted:             booted,
		Joined:             joined,
		Node:               node != nil || !s.Workload.Answers && machine.Status.NodeRef.IsDefined(),
		APIServer:          apiServer(s, machine, node),
		SkipRedundancy:     skipRedundancy,
		Ready:              node != nil && serves(s, machine, node),
		Differs:            s.Differs[machine.Name],
		CertificatesExpire: CertificatesExpire(s, machine, node),
		DeleteFirst:        deleteFirst,
		Remediate:          remediationReason(machine, s.Initialized && node != nil),
		Replaces:           machine.Annotations[controlplanev1.ReplacesAnnotation],
		Deleting:           deleting,
		AtHook:             deleting && hooked && atHook(machine),
		Released:           deleting && !hooked,
		On:                 inputNode(s, machine, node),
		EndpointMove:       s.EndpointMoves[machine.Name],
	}
}

// updateProgress returns since when a machine is changed in place, and the progress
// that Cluster API reports.
func updateProgress(machine *clusterv1.Machine) (since time.Time, progress string) {
	if c := conditions.Get(machine, clusterv1.MachineUpdatingCondition); c != nil && c.Status == metav1.ConditionTrue {
		progress = c.Message
	}
	return scope.UpdatingSince(machine), progress
}

// startedAt returns when the infrastructure of a machine became ready, which is
// when its time to become a node begins. The time of a machine that still waits
// for its hypervisor has not begun.
func startedAt(s *scope.Scope, machine *clusterv1.Machine) time.Time {
	if machine.Spec.ProviderID == "" {
		return s.At
	}
	if c := conditions.Get(machine, clusterv1.MachineInfrastructureReadyCondition); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// joinBy returns until when a machine may join. Its bootstrap token is renewed
// until it starts; the recorded expiry is used only if it is later than the
// minimum.
func joinBy(s *scope.Scope, machine *clusterv1.Machine) time.Time {
	timeout := s.ControlPlane.Spec.Platform.GetJoinTimeout()
	by := machine.CreationTimestamp.Add(timeout)
	if config := s.Configs[machine.Name]; config != nil {
		if noted, err := time.Parse(time.RFC3339, config.Annotations[bootstrapv1.JoinByAnnotation]); err == nil && noted.After(by) {
			by = noted
		}
	}
	if next := s.At.Add(timeout); machine.Spec.ProviderID == "" && next.After(by) {
		return next
	}
	return by
}

// apiServer returns the state of the API server on a machine. The probe of its
// own address takes precedence over its pod, whose status may be a minute old:
// a kubelet may report through that same API server. If no API server answers
// at its own address, managers have no route to the nodes' network.
func apiServer(s *scope.Scope, machine *clusterv1.Machine, node *facts.Node) plan.APIServer {
	switch {
	case s.Workload.Serving.Has(machine.Name):
		return plan.APIServerServes
	case s.Workload.Serving.Len() > 0 && s.Workload.Failing.Has(machine.Name):
		return plan.APIServerFails
	case node == nil || !s.Workload.Answers:
		return plan.APIServerUnknown
	case node.Unreachable && s.Workload.Serving.Len() > 0:
		return plan.APIServerFails
	case node.Unreachable:
		return plan.APIServerUnknown
	case node.Components.APIServer.State != facts.Running:
		return plan.APIServerFails
	case s.Workload.Serving.Len() > 0:
		return plan.APIServerUnknown
	default:
		return plan.APIServerServes
	}
}

// role returns how a machine becomes a node. The lock holder initializes,
// unless its bootstrap data has another mode.
func role(s *scope.Scope, machine *clusterv1.Machine, booted bool) plan.Role {
	if recorded := s.Roles[machine.Name]; recorded != plan.Undecided {
		return recorded
	}
	switch {
	case machine.Name == s.Lock.Holder:
		return plan.Init
	case booted:
		return plan.Join
	default:
		return plan.Undecided
	}
}

// InitUnknown reports whether the workload cluster could not be queried reliably
// yet.
func InitUnknown(workloadCluster *facts.Cluster, now time.Time) bool {
	return workloadCluster.Pending || !workloadCluster.UnreachableSince.IsZero() && now.Sub(workloadCluster.UnreachableSince) < timelimits.UnreachableGrace
}

// atHook reports whether the deletion of a machine waits only for our hook.
func atHook(machine *clusterv1.Machine) bool {
	if conditions.GetReason(machine, clusterv1.MachineDeletingCondition) != clusterv1.MachineDeletingWaitingForPreTerminateHookReason {
		return false
	}
	for annotation := range machine.Annotations {
		if annotation != controlplanev1.MachineHookAnnotation &&
			strings.HasPrefix(annotation, clusterv1.PreTerminateDeleteHookAnnotationPrefix) {
			return false
		}
	}
	return true
}

// remediationReason returns why a machine has to be replaced: its MachineHealthCheck
// failed, or its first boot failed permanently and it is not a node.
func remediationReason(machine *clusterv1.Machine, isNode bool) string {
	switch {
	case CheckFailed(machine, isNode):
		return fmt.Sprintf("its MachineHealthCheck failed (%s)", conditions.GetReason(machine, clusterv1.MachineHealthCheckSucceededCondition))
	case BootFailed(machine, isNode):
		return "its first boot failed"
	}
	return ""
}

// CheckFailed reports whether a MachineHealthCheck requested a machine's
// remediation. The conditions are those of the contract: the check failed, and
// the machine's owner has to act. A node startup timeout of Cluster API does
// not count if this controller has observed the node.
func CheckFailed(machine *clusterv1.Machine, isNode bool) bool {
	late := conditions.GetReason(machine, clusterv1.MachineHealthCheckSucceededCondition) == clusterv1.MachineHealthCheckNodeStartupTimeoutReason
	return conditions.IsFalse(machine, clusterv1.MachineHealthCheckSucceededCondition) &&
		conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition) && (!late || !isNode)
}

// BootFailed reports whether a machine's first boot failed permanently and it
// is not a node. Cluster API may not have observed the node yet: another
// machine would be created, and be surplus a moment later.
func BootFailed(machine *clusterv1.Machine, isNode bool) bool {
	_, skipped := machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	return !skipped && !isNode && !machine.Status.NodeRef.IsDefined() &&
		conditions.GetReason(machine, clusterv1.MachineInfrastructureReadyCondition) == BootstrapFailed
}

// inputEtcd returns the state of etcd, or why it is unknown. If the API server
// is unreachable it only reports a lost quorum, because nothing may be changed
// then.
func inputEtcd(s *scope.Scope, now time.Time) (*plan.Etcd, string) {
	switch {
	case s.Unreachable():
		return nil, s.Workload.Problem
	case scope.ExternalEtcd(s):
		// The API server answers, so its etcd works.
		return &plan.Etcd{}, ""
	case s.Workload.Etcd == nil:
		return nil, s.Workload.EtcdProblem
	}
	found := &plan.Etcd{Alarms: s.Workload.Etcd.Alarms, OrphanedAlarms: s.Workload.Etcd.Orphans}
	for _, m := range s.Workload.Etcd.Members {
		member := plan.Member{
			ID: m.ID, Name: m.Name, Machine: scope.MachineOf(s, m), Since: since(s, m, now),
			Learner: m.Learner, Healthy: m.Answers, Leader: m.Leader, LeaderTransferFailed: s.TransferFailed[m.ID],
		}
		member.Foreign = scope.IsForeign(s, m)
		found.Members = append(found.Members, member)
	}
	return found, ""
}

// since returns when a member was first observed. It is kept in memory only:
// after a restart, a member that has not started gets its full time again,
// which only costs time.
func since(s *scope.Scope, m etcd.Member, now time.Time) time.Time {
	if seen := s.Workload.MemberSince[m.ID]; !seen.IsZero() {
		return seen
	}
	return now
}

// remediationRecord is the content of the remediation annotation.
type remediationRecord struct {
	Machine string      `json:"machine"`
	At      metav1.Time `json:"at"`
	Retries int         `json:"retries"`
	// Replaces is the remediated machine that the machine replaced.
	Replaces string `json:"replaces,omitempty"`
}

// LastRemediation reads the remediation that began last. An unreadable value
// counts as none: only this controller writes the annotation.
func LastRemediation(controlPlane *controlplanev1.NovaControlPlane) *plan.Remediation {
	stored := controlPlane.Annotations[controlplanev1.RemediationAnnotation]
	if stored == "" {
		return nil
	}
	record := remediationRecord{}
	if err := json.Unmarshal([]byte(stored), &record); err != nil || record.Machine == "" {
		return nil
	}
	return &plan.Remediation{Machine: record.Machine, At: record.At.Time, Replaces: record.Replaces, Retries: record.Retries}
}

// EncodeRemediation returns the last remediation as the annotation stores it.
func EncodeRemediation(r *plan.Remediation) (string, error) {
	encoded, err := json.Marshal(remediationRecord{Machine: r.Machine, At: metav1.NewTime(r.At), Replaces: r.Replaces, Retries: r.Retries})
	if err != nil {
		return "", fmt.Errorf("encoding remediation: %w", err)
	}
	return string(encoded), nil
}

// BootstrapFailed is the reason of a machine's InfrastructureReady condition
// when the guest reported that its first boot failed permanently.
const BootstrapFailed = "BootstrapFailed"

// ModeInit is the mode of bootstrap data that initializes.
const ModeInit = "Init"

// BootstrapRole returns the role for a mode of bootstrap data.
func BootstrapRole(mode string) plan.Role {
	switch mode {
	case "":
		return plan.Undecided
	case ModeInit:
		return plan.Init
	default:
		return plan.Join
	}
}

// CreatedAt returns when a machine was created, also after a move.
func CreatedAt(machine *clusterv1.Machine) time.Time {
	recorded, err := time.Parse(time.RFC3339, machine.Annotations[controlplanev1.CreatedAnnotation])
	if err != nil || recorded.After(machine.CreationTimestamp.Time) {
		return machine.CreationTimestamp.Time
	}
	return recorded
}

// inputEndpoint returns the state of the endpoint's address for the plan.
func inputEndpoint(s *scope.Scope) *plan.Endpoint {
	at := s.Workload.Endpoint
	if at.Holder == "" || !s.Workload.Answers {
		return nil
	}
	return &plan.Endpoint{
		Holder: at.Holder, Confirmed: at.Confirmed, Unconfirmed: at.Unconfirmed, Before: at.Before,
		KubeVIP: s.ControlPlane.Spec.Endpoint.GetProvider() == controlplanev1.EndpointProviderKubeVIP,
	}
}

// inputNode returns the state of a machine's node for the plan.
func inputNode(s *scope.Scope, machine *clusterv1.Machine, node *facts.Node) plan.Node {
	if node == nil {
		return plan.Node{}
	}
	kubeVIP, known := KubeVIPOf(s, machine, node)
	return plan.Node{
		Name: node.Name, Ready: node.Ready, Responds: node.Ready || s.Workload.Serving.Has(machine.Name),
		KubeVIPFails: node.Ready && known && kubeVIP.State != facts.Running,
	}
}

// KubeVIPOf returns kube-vip of a machine, and whether its state is known: pods
// of older machines lack the component label, and with a load balancer there is
// no kube-vip.
func KubeVIPOf(s *scope.Scope, machine *clusterv1.Machine, node *facts.Node) (c facts.Component, known bool) {
	if node == nil || s.ControlPlane.Spec.Endpoint.GetProvider() != controlplanev1.EndpointProviderKubeVIP {
		return facts.Component{}, false
	}
	c = node.Components.KubeVIP
	return c, c.State != facts.Missing || conditions.Has(machine, controlplanev1.MachineKubeVIPPodHealthyCondition)
}

// serves reports whether all required components run on a machine's node.
func serves(s *scope.Scope, machine *clusterv1.Machine, node *facts.Node) bool {
	kubeVIP, known := KubeVIPOf(s, machine, node)
	return node.Ready && node.Components.Running(!scope.ExternalEtcd(s)) && (!known || kubeVIP.State == facts.Running)
}
