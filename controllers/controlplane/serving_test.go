package controlplane

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

func TestReadinessGates(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(s *scope.Scope)
		want   []string
	}{
		"Stacked": {reason: "all components count, as in KubeadmControlPlane", want: []string{
			"APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy", "EtcdPodHealthy", "EtcdMemberHealthy",
		}},
		"External": {reason: "external etcd has no pod and no member there", change: scopetest.SetExternalEtcd, want: []string{
			"APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy",
		}},
		"Own": {reason: "those of the template come after them, and none twice", change: func(s *scope.Scope) {
			scopetest.SetExternalEtcd(s)
			s.ControlPlane.Spec.MachineTemplate.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "SchedulerPodHealthy"}, {ConditionType: "Own"}}
		}, want: []string{"APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy", "Own"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := scopetest.Running()
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
	s := scopetest.Running()
	scopetest.SetExternalEtcd(s)
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
		in := input.Of(s, time.Now())
		reportHold(s, in, input.Machine(s, machine), machine)
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
