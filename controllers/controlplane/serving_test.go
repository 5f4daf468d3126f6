package controlplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
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
