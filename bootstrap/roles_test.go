package bootstrap

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

func TestRoles(t *testing.T) {
	const (
		controlPlane  = "node-role.kubernetes.io/control-plane"
		infra         = "node-role.kubernetes.io/infra"
		uninitialized = "node.cluster.x-k8s.io/uninitialized"
	)
	for name, tc := range map[string]struct {
		reason       string
		roles        []bootstrapv1.NodeRole
		controlPlane bool
		taints       []string
		labels       []string
	}{
		"DefaultWorker":       {"a worker only waits for its labels", nil, false, []string{uninitialized}, []string{"worker"}},
		"DefaultControlPlane": {"a control plane is kept free", nil, true, []string{controlPlane}, []string{"control-plane"}},
		"Infra":               {"infra is kept free", []bootstrapv1.NodeRole{"infra"}, false, []string{uninitialized, infra}, []string{"infra"}},
		"Ingress":             {"ingress is open", []bootstrapv1.NodeRole{"ingress"}, false, []string{uninitialized}, []string{"ingress"}},
		"InfraWorker":         {"a worker too is open", []bootstrapv1.NodeRole{"infra", "worker"}, false, []string{uninitialized}, []string{"infra", "worker"}},
		"ControlPlaneInfra":   {"both are kept free", []bootstrapv1.NodeRole{"control-plane", "infra"}, true, []string{controlPlane, infra}, []string{"control-plane", "infra"}},
		"ControlPlaneWorker":  {"a small cluster's only node is open", []bootstrapv1.NodeRole{"control-plane", "worker"}, true, nil, []string{"control-plane", "worker"}},
	} {
		t.Run(name, func(t *testing.T) {
			roles := Roles(&bootstrapv1.NodeConfigSpec{Roles: tc.roles}, tc.controlPlane)
			var keys []string
			for _, taint := range taints(roles, tc.controlPlane) {
				keys = append(keys, taint.(map[string]any)["key"].(string))
			}
			if diff := cmp.Diff(tc.taints, keys); diff != "" {
				t.Errorf("%s: taints (-want +got):\n%s", tc.reason, diff)
			}
			want := map[string]string{}
			for _, label := range tc.labels {
				want["node-role.kubernetes.io/"+label] = ""
			}
			if diff := cmp.Diff(want, RoleLabels(roles)); diff != "" {
				t.Errorf("%s: labels (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
