package status

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

func TestHealthWhileJoining(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		external bool
		want     map[string]string
	}{
		"Bounded": {reason: "the message names the timeout", want: map[string]string{
			controlplanev1.MachineAPIServerPodHealthyCondition: "Waiting for the machine to become a node. It is replaced if it does not join in time (platform.joinTimeoutSeconds)",
			controlplanev1.MachineEtcdMemberHealthyCondition:   "Waiting for the machine to join etcd. It is replaced if it does not join in time (platform.joinTimeoutSeconds)",
		}},
		"ExternalEtcd": {reason: "no condition of etcd is expected", external: true, want: map[string]string{
			controlplanev1.MachineAPIServerPodHealthyCondition: "Waiting for the machine to become a node",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope.Scope{
				ControlPlane: &controlplanev1.NovaControlPlane{}, Machines: scopetest.Machines(""),
				Workload: facts.Cluster{Answers: true, Etcd: &etcd.Health{Members: []etcd.Member{{ID: 1, Name: "other", Answers: true, Leader: true}}}},
			}
			if tc.external {
				s.ControlPlane.Spec.Etcd.External.Endpoints = []string{"https://etcd:2379"}
			}
			got := map[string]string{}
			for _, c := range MachineHealth(s, s.Machines["m0"]) {
				if c.Status != metav1.ConditionUnknown {
					t.Errorf("%s: nothing is known yet, got %+v", tc.reason, c)
				}
				got[c.Type] = c.Message
			}
			for condition, message := range tc.want {
				if got[condition] != message {
					t.Errorf("%s: %s: want %q, got %q", tc.reason, condition, message, got[condition])
				}
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
