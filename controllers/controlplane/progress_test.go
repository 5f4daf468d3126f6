package controlplane

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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

func condition(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason}
}

// machineWith returns a machine with conditions.
func machineWith(of ...metav1.Condition) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m0"}}
	for _, c := range of {
		conditions.Set(m, c)
	}
	return m
}

func TestGivenUp(t *testing.T) {
	failed := condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode")
	toDo := condition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "WaitingForRemediation")
	broken := condition(clusterv1.MachineInfrastructureReadyCondition, metav1.ConditionFalse, bootstrapFailed)
	joined := machineWith(broken)
	joined.Status.NodeRef.Name = "m0"
	skipped := machineWith(broken)
	skipped.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
	for name, tc := range map[string]struct {
		reason  string
		machine *clusterv1.Machine
		isNode  bool
		want    string
	}{
		"Well":       {reason: "no condition is false", machine: machineWith()},
		"GivenUp":    {reason: "the check failed and the owner is to act", machine: machineWith(failed, toDo), want: "UnhealthyNode"},
		"Others":     {reason: "another controller remediates it", machine: machineWith(failed)},
		"CameBack":   {reason: "it is well again", machine: machineWith(condition(failed.Type, metav1.ConditionTrue, "Ok"), toDo)},
		"BootFailed": {reason: "its guest reported so", machine: machineWith(broken), want: "first boot failed"},
		"Joined":     {reason: "it is a node nevertheless", machine: joined},
		"Node":       {reason: "Cluster API has not seen it yet", machine: machineWith(broken), isNode: true},
		"SickNode":   {reason: "a check may give up nodes too", machine: machineWith(failed, toDo, broken), isNode: true, want: "UnhealthyNode"},
		"Skipped":    {reason: "a user debugs it", machine: skipped},
		"NoInfrastructure": {
			reason: "that may come", machine: machineWith(condition(clusterv1.MachineInfrastructureReadyCondition, metav1.ConditionFalse, "NotReady")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := remediationReason(tc.machine, tc.isNode)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

// A node in a workload cluster that is not initialized proves nothing: only
// another machine can initialize it.
func TestFailedBootOfANode(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		initialized bool
		want        bool
	}{
		"Initialized": {reason: "another machine would not fix it", initialized: true},
		"Before":      {reason: "no other machine initializes", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := running()
			s.Initialized = tc.initialized
			s.Machines["m0"] = machineWith(condition(clusterv1.MachineInfrastructureReadyCondition, metav1.ConditionFalse, bootstrapFailed))
			if got := inputMachine(s, s.Machines["m0"]).Remediate != ""; got != tc.want {
				t.Errorf("%s: given up = %v", tc.reason, got)
			}
		})
	}
}

func TestAtHook(t *testing.T) {
	waiting := condition(clusterv1.MachineDeletingCondition, metav1.ConditionTrue, clusterv1.MachineDeletingWaitingForPreTerminateHookReason)
	draining := condition(clusterv1.MachineDeletingCondition, metav1.ConditionTrue, clusterv1.MachineDeletingDrainingNodeReason)
	for name, tc := range map[string]struct {
		reason  string
		machine *clusterv1.Machine
		others  string
		want    bool
	}{
		"Draining": {reason: "not before drain and volumes", machine: machineWith(draining)},
		"Waiting":  {reason: "no other hook is left", machine: machineWith(waiting), want: true},
		"Another":  {reason: "another hook needs the host", machine: machineWith(waiting), others: clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/backup"},
		"Drain":    {reason: "hooks before the drain are over", machine: machineWith(waiting), others: clusterv1.PreDrainDeleteHookAnnotationPrefix + "/x", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.machine.Annotations = map[string]string{controlplanev1.MachineHookAnnotation: ""}
			if tc.others != "" {
				tc.machine.Annotations[tc.others] = ""
			}
			if got := atHook(tc.machine); got != tc.want {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
}

func TestReportHold(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		seen     plan.Machine
		decision plan.Decision
		want     metav1.Condition
	}{
		"Staying":  {reason: "no action is needed"},
		"Draining": {reason: "Cluster API drains it", seen: plan.Machine{Deleting: true}, want: metav1.Condition{Status: "False", Message: "drained"}},
		"Held": {
			reason: "the decision is the reason", seen: plan.Machine{Deleting: true, AtHook: true},
			decision: plan.Decision{Action: plan.Wait, Reason: "etcd could lose its quorum"}, want: metav1.Condition{Status: "False", Message: "lose its quorum"},
		},
		"Released": {reason: "it may go", seen: plan.Machine{Deleting: true, Released: true}, want: metav1.Condition{Status: "True"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineWith(condition(controlplanev1.MachineSafeToDeleteCondition, metav1.ConditionUnknown, "Before"))
			reportHold(&scope.Scope{Decision: tc.decision}, plan.Input{}, tc.seen, m)
			got := ptr.Deref(conditions.Get(m, controlplanev1.MachineSafeToDeleteCondition), metav1.Condition{})
			if got.Status != tc.want.Status || !strings.Contains(got.Message, tc.want.Message) {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
		})
	}
}

func TestRemediatingCondition(t *testing.T) {
	given := func(s *scope.Scope) {
		conditions.Set(s.Machines["m0"], condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode"))
		conditions.Set(s.Machines["m0"], condition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "WaitingForRemediation"))
	}
	for name, tc := range map[string]struct {
		reason          string
		change          func(*scope.Scope)
		status          metav1.ConditionStatus
		because, saying string
	}{
		"Well":   {reason: "nothing is to be done", change: func(*scope.Scope) {}, status: "False", because: controlplanev1.NotRemediatingReason},
		"Begins": {reason: "one is to be replaced", change: given, status: "True", because: controlplanev1.RemediatingReason, saying: "Replacing m0"},
		"Waits": {
			reason: "something has to come first", change: func(s *scope.Scope) {
				given(s)
				s.Decision = plan.Decision{Action: plan.Wait, Reason: "etcd lost its quorum. " + plan.Recovery}
			}, status: "True", because: controlplanev1.RemediationDeferredReason, saying: "restore etcd",
		},
		"Limit": {
			reason: "people have to look", change: func(s *scope.Scope) {
				given(s)
				s.Decision = plan.Decision{Action: plan.Wait, Reason: "3 replacements failed", LimitReached: true}
			}, status: "True", because: controlplanev1.RemediationLimitReachedReason, saying: "3 replacements",
		},
		"Going": {
			reason: "it is on its way out", change: func(s *scope.Scope) {
				s.Machines["m0"].DeletionTimestamp = &metav1.Time{Time: time.Now()}
				encoded, err := encodeRemediation(&plan.Remediation{Machine: "m0", At: time.Now()})
				if err != nil {
					t.Fatal(err)
				}
				s.ControlPlane.Annotations = map[string]string{controlplanev1.RemediationAnnotation: encoded}
			}, status: "True", because: controlplanev1.RemediatingReason, saying: "Replacing m0",
		},
		"GoingLate": {
			reason: "a machine that exceeded its time is reported while it exists", change: func(s *scope.Scope) {
				s.Machines["m0"].Spec.ProviderID = "x://m0"
				s.Machines["m0"].CreationTimestamp.Time = s.At.Add(-bootstrapv1.JoinBound - timelimits.Grace - time.Minute)
				s.Machines["m0"].DeletionTimestamp = &metav1.Time{Time: s.At}
				s.Workload.Etcd.Members[0].Name = "m1"
			}, status: "True", because: controlplanev1.RemediatingReason, saying: "Replacing m0 (it did not join etcd in time)",
		},
		"SilentEtcd": {
			reason: "an unreachable machine is not unhealthy", change: func(s *scope.Scope) { s.Workload.Etcd = nil }, status: "False",
			because: controlplanev1.NotRemediatingReason,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope.Scope{
				At: time.Now(), ControlPlane: newControlPlane("ns"), Cluster: &clusterv1.Cluster{}, Machines: machinesIn(""), Initialized: true,
				Workload: facts.Cluster{
					Answers: true, Nodes: []facts.Node{{Name: "m0", Ready: true}},
					Etcd: &etcd.Health{Members: []etcd.Member{{ID: 1, Name: "m0", Answers: true, Leader: true}}},
				},
			}
			tc.change(s)
			got := remediatingCondition(s)
			if got.Status != tc.status || got.Reason != tc.because || !strings.Contains(got.Message, tc.saying) {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
		})
	}
}

func TestRemediationIsRead(t *testing.T) {
	c := newControlPlane("ns")
	begun := &plan.Remediation{Machine: "m0", At: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Retries: 2}
	encoded, err := encodeRemediation(begun)
	if err != nil {
		t.Fatal(err)
	}
	c.Annotations = map[string]string{controlplanev1.RemediationAnnotation: encoded}
	if got := lastRemediation(c); got == nil || got.Machine != "m0" || got.Retries != 2 || !got.At.Equal(begun.At) {
		t.Errorf("got %+v", got)
	}
	c.Annotations[controlplanev1.RemediationAnnotation] = "garbage"
	if got := lastRemediation(c); got != nil {
		t.Errorf("garbage is read as %+v", got)
	}
}
