package controlplane

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

func TestAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(s *scope.Scope)
		want   plan.APIServer
	}{
		"Pod":         {reason: "the pod's status counts where no API server can be reached", want: plan.APIServerServes},
		"PodFails":    {reason: "in both directions", change: func(s *scope.Scope) { s.Workload.Nodes[0].Components.APIServer.State = facts.Failed }, want: plan.APIServerFails},
		"Silent":      {reason: "a kubelet that does not report proves nothing", change: func(s *scope.Scope) { s.Workload.Nodes[0].Unreachable = true }},
		"NoNode":      {reason: "nor does a node that is not there", change: func(s *scope.Scope) { s.Workload.Nodes = nil }},
		"NoAPIServer": {reason: "pods that were read before say nothing while the cluster does not answer", change: func(s *scope.Scope) { s.Workload.Answers = false }},
		"Answers": {
			reason: "an answer at its own address counts more", want: plan.APIServerServes,
			change: func(s *scope.Scope) { s.Workload.Nodes[0].Unreachable, s.Workload.Serving = true, sets.New("m0") },
		},
		"OnlyOthers": {
			reason: "a pod's status may be old", change: func(s *scope.Scope) { s.Workload.Serving = sets.New("m1") },
		},
		"Refused": {
			reason: "a host that refuses connections has no API server, whatever the pod's status was", want: plan.APIServerFails,
			change: func(s *scope.Scope) { s.Workload.Serving, s.Workload.Failing = sets.New("m1"), sets.New("m0") },
		},
		"AllRefused": {
			reason: "unless all do: it is the network then", want: plan.APIServerServes,
			change: func(s *scope.Scope) { s.Workload.Failing = sets.New("m0", "m1") },
		},
		"SilentOnlyOthers": {
			reason: "neither kubelet nor API server answers, and others do", want: plan.APIServerFails,
			change: func(s *scope.Scope) { s.Workload.Nodes[0].Unreachable, s.Workload.Serving = true, sets.New("m1") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := running()
			if tc.change != nil {
				tc.change(s)
			}
			machine := s.Sorted()[0]
			if got := apiServer(s, machine, facts.NodeOf(machine, s.Workload.Nodes)); got != tc.want {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

func TestReadinessGates(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(s *scope.Scope)
		want   []string
	}{
		"Stacked": {reason: "all components count, as in KubeadmControlPlane", want: []string{
			"APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy", "EtcdPodHealthy", "EtcdMemberHealthy",
		}},
		"External": {reason: "external etcd has no pod and no member there", change: elsewhere, want: []string{
			"APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy",
		}},
		"Own": {reason: "those of the template come after them, and none twice", change: func(s *scope.Scope) {
			elsewhere(s)
			s.ControlPlane.Spec.MachineTemplate.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "SchedulerPodHealthy"}, {ConditionType: "Own"}}
		}, want: []string{"APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy", "Own"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := running()
			if tc.change != nil {
				tc.change(s)
			}
			var got []string
			for _, gate := range desiredMachine(s, s.Sorted()[0]).Spec.ReadinessGates {
				got = append(got, gate.ConditionType)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

// TestHeldForRedundancy checks that a machine with the last API server reports
// this at its hook, and that the annotation overrides it.
func TestHeldForRedundancy(t *testing.T) {
	s := running()
	elsewhere(s)
	machine := s.Sorted()[0]
	for i := range s.Workload.Nodes {
		if s.Workload.Nodes[i].Name != machine.Name {
			s.Workload.Nodes[i].Components.APIServer.State = facts.Failed
		}
	}
	machine.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	machine.Annotations = map[string]string{controlplanev1.MachineHookAnnotation: ""}
	conditions.Set(machine, metav1.Condition{
		Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
	})
	message := func() string {
		in := input(s, time.Now())
		reportHold(s, in, inputMachine(s, machine), machine)
		return conditions.GetMessage(machine, controlplanev1.MachineSafeToDeleteCondition)
	}
	const about = "no other machine has an API server that is known to serve"
	if got := message(); !strings.Contains(got, about) || !strings.Contains(got, controlplanev1.SkipRedundancyAnnotation) {
		t.Errorf("got %q", got)
	}
	machine.Annotations[controlplanev1.SkipRedundancyAnnotation] = ""
	if got := message(); strings.Contains(got, about) {
		t.Errorf("with the annotation: %q", got)
	}
}

func TestRemediationRecord(t *testing.T) {
	want := &plan.Remediation{Machine: "b", At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Replaces: "a", Retries: 2}
	encoded, err := encodeRemediation(want)
	if err != nil {
		t.Fatal(err)
	}
	controlPlane := &controlplanev1.NovaControlPlane{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{controlplanev1.RemediationAnnotation: encoded}}}
	got := lastRemediation(controlPlane)
	got.At = got.At.UTC()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
