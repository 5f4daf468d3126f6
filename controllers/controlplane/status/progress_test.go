package status

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
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

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
			m := scopetest.MachineWith(scopetest.Condition(controlplanev1.MachineSafeToDeleteCondition, metav1.ConditionUnknown, "Before"))
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
		conditions.Set(s.Machines["m0"], scopetest.Condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode"))
		conditions.Set(s.Machines["m0"], scopetest.Condition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "WaitingForRemediation"))
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
				encoded, err := input.EncodeRemediation(&plan.Remediation{Machine: "m0", At: time.Now()})
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
				At: time.Now(), Cluster: &clusterv1.Cluster{},
				ControlPlane: &controlplanev1.NovaControlPlane{Spec: controlplanev1.NovaControlPlaneSpec{Replicas: ptr.To(int32(3)), Version: "v1.36.3"}},
				Machines:     scopetest.Machines(""), Initialized: true,
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
