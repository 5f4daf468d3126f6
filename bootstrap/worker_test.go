package bootstrap

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

func TestWorker(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		spec   bootstrapv1.NodeConfigSpec
		domain string
		want   WorkerNode
	}{
		"Nothing": {"a plain worker has its role's label and no taint that stays", bootstrapv1.NodeConfigSpec{}, "", WorkerNode{
			Labels: map[string]string{"node-role.kubernetes.io/worker": ""},
		}},
		"Infra": {"infra nodes are kept free", bootstrapv1.NodeConfigSpec{Roles: []bootstrapv1.NodeRole{"infra", "ingress"}}, "", WorkerNode{
			Labels: map[string]string{"node-role.kubernetes.io/infra": "", "node-role.kubernetes.io/ingress": ""},
			Taints: []bootstrapv1.Taint{{Key: "node-role.kubernetes.io/infra", Effect: "NoSchedule"}},
		}},
		"Own": {"the user's labels and taints are included", bootstrapv1.NodeConfigSpec{
			Taints: []bootstrapv1.Taint{{Key: "example.com/gpu", Value: "a100", Effect: "NoExecute"}},
			Kubelet: bootstrapv1.KubeletSpec{ExtraArgs: []bootstrapv1.Arg{
				{Name: "max-pods", Value: ptr.To("60")}, {Name: "max-pods", Value: ptr.To("200")},
				{Name: "node-labels", Value: ptr.To("example.com/a=1,example.com/b=")}, {Name: "node-labels", Value: ptr.To("c")},
				{Name: "v", Value: ptr.To("2")},
			}},
		}, "", WorkerNode{
			Labels:  map[string]string{"node-role.kubernetes.io/worker": "", "example.com/a": "1", "example.com/b": "", "c": ""},
			Taints:  []bootstrapv1.Taint{{Key: "example.com/gpu", Value: "a100", Effect: "NoExecute"}},
			MaxPods: "200",
		}},
		"Zone": {"the failure domain is the zone", bootstrapv1.NodeConfigSpec{}, "rack-1", WorkerNode{
			Labels: map[string]string{"node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": "rack-1"},
		}},
		"OwnZone": {"a zone of the user is kept", bootstrapv1.NodeConfigSpec{Kubelet: bootstrapv1.KubeletSpec{ExtraArgs: []bootstrapv1.Arg{
			{Name: "node-labels", Value: ptr.To("topology.kubernetes.io/zone=own")},
		}}}, "rack-1", WorkerNode{
			Labels: map[string]string{"node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": "own"},
		}},
		"NoLabel": {"a name that cannot be the value of a label is left out", bootstrapv1.NodeConfigSpec{}, "rack 1", WorkerNode{
			Labels: map[string]string{"node-role.kubernetes.io/worker": ""},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Worker(&tc.spec, tc.domain)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
