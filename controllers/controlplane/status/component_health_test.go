package status

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

func TestComponentsCondition(t *testing.T) {
	failed := facts.Component{State: facts.Failed, Message: "It is not ready and was restarted"}
	starts := facts.Component{State: facts.Provisioning, Message: "Waiting for it to be ready"}
	const waits = "Waiting for the machine to become a node. It is replaced if it does not join in time (platform.joinTimeoutSeconds)"
	for name, tc := range map[string]struct {
		reason   string
		machines int
		change   func(*scope.Scope)
		status   metav1.ConditionStatus
		want     string
	}{
		"Healthy": {reason: "nothing to say", machines: 3, status: metav1.ConditionTrue},
		"One": {
			reason: "a failure is listed below its machine", machines: 3, status: metav1.ConditionFalse,
			change: func(s *scope.Scope) { s.Workload.Nodes[1].Components.Scheduler = failed },
			want:   "* Machine m1:\n  * SchedulerPodHealthy: It is not ready and was restarted",
		},
		"Several": {
			reason: "a line for each component", machines: 1, status: metav1.ConditionFalse,
			change: func(s *scope.Scope) {
				s.Workload.Nodes[0].Components.APIServer = starts
				s.Workload.Nodes[0].Components.Scheduler = failed
				s.Workload.Nodes[0].Components.Etcd = facts.Component{}
			},
			want: "* Machine m0:\n  * APIServerPodHealthy: Waiting for it to be ready\n" +
				"  * SchedulerPodHealthy: It is not ready and was restarted\n  * EtcdPodHealthy: The pod does not exist",
		},
		"KubeVIP": {
			reason: "kube-vip is listed like any other component", machines: 3, status: metav1.ConditionFalse,
			change: func(s *scope.Scope) {
				s.Workload.Nodes[2].Components.KubeVIP = facts.Component{State: facts.Failed, Message: "Its image cannot be pulled"}
			},
			want: "* Machine m2:\n  * KubeVIPPodHealthy: Its image cannot be pulled",
		},
		"KubeVIPUnlabeled": {
			reason: "a pod without the label may run", machines: 1, status: metav1.ConditionTrue,
			change: func(s *scope.Scope) { s.Workload.Nodes[0].Components.KubeVIP = facts.Component{} },
		},
		"KubeVIPGone": {
			reason: "a pod that existed is missed", machines: 1, status: metav1.ConditionFalse,
			change: func(s *scope.Scope) {
				s.Workload.Nodes[0].Components.KubeVIP = facts.Component{}
				conditions.Set(s.Machines["m0"], metav1.Condition{Type: controlplanev1.MachineKubeVIPPodHealthyCondition, Status: metav1.ConditionTrue, Reason: "Running"})
			},
			want: "* Machine m0:\n  * KubeVIPPodHealthy: The pod does not exist",
		},
		"Balancer": {
			reason: "with a load balancer it is not needed", machines: 1, status: metav1.ConditionTrue,
			change: func(s *scope.Scope) {
				s.ControlPlane.Spec.Endpoint.Provider = controlplanev1.EndpointProviderExternal
				s.Workload.Nodes[0].Components.KubeVIP = failed
			},
		},
		"Alike": {
			reason: "the same message appears once for all machines", machines: 3, status: metav1.ConditionFalse,
			change: func(s *scope.Scope) {
				s.Workload.Nodes[0].Components.Scheduler = failed
				s.Workload.Nodes[2].Components.Scheduler = failed
			},
			want: "* Machines m0, m2:\n  * SchedulerPodHealthy: It is not ready and was restarted",
		},
		"Joining": {
			reason: "a message about all components appears once", machines: 3, status: metav1.ConditionUnknown,
			change: func(s *scope.Scope) { s.Workload.Nodes = s.Workload.Nodes[:1] },
			want:   "* Machines m1, m2:\n  * Control plane components: " + waits,
		},
		"FailedFirst": {
			reason: "failures are listed before unknown states", machines: 5, status: metav1.ConditionFalse,
			change: func(s *scope.Scope) {
				s.Workload.Nodes[3].Components.Scheduler = failed
				s.Workload.Nodes[4].Components.ControllerManager = failed
				s.Workload.Nodes[0].Unreachable = true
				s.Workload.Nodes = slices.Delete(s.Workload.Nodes, 1, 3)
			},
			want: "* Machine m3:\n  * SchedulerPodHealthy: It is not ready and was restarted\n" +
				"* Machine m4:\n  * ControllerManagerPodHealthy: It is not ready and was restarted\n" +
				"* Machine m0:\n  * Control plane components: The kubelet on node m0 has stopped posting status\n" +
				"* Machines m1, m2:\n  * Control plane components: " + waits,
		},
		"ExternalEtcd": {
			reason: "external etcd is not included", machines: 1, status: metav1.ConditionFalse,
			change: func(s *scope.Scope) {
				s.ControlPlane.Spec.Etcd.External.Endpoints = []string{"https://etcd:2379"}
				s.Workload.Nodes[0].Components = facts.Components{APIServer: starts, ControllerManager: starts, Scheduler: starts, KubeVIP: starts}
			},
			want: "* Machine m0:\n  * Control plane components: Waiting for it to be ready",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := scopetest.Running()
			s.Machines, s.Workload.Nodes = scopetest.Machines(make([]string, tc.machines)...), nil
			for i := range tc.machines {
				s.Workload.Nodes = append(s.Workload.Nodes, facts.Node{Name: fmt.Sprintf("m%d", i), ControlPlane: true, Components: scopetest.AllRun})
			}
			if tc.change != nil {
				tc.change(s)
			}
			got := componentsCondition(s)
			if got.Status != tc.status {
				t.Errorf("%s: %s, want %s", tc.reason, got.Status, tc.status)
			}
			if diff := cmp.Diff(tc.want, got.Message); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}
