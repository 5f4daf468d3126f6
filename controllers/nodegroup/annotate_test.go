package nodegroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
)

func TestExpected(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		node   bootstrap.WorkerNode
		change func(*clusterv1.MachineDeployment)
		want   map[string]string
	}{
		"Role": {
			"a role is described by its label and taint",
			bootstrap.WorkerNode{
				Labels: map[string]string{"node-role.kubernetes.io/infra": "", "example.com/a": "b"},
				Taints: []bootstrapv1.Taint{
					{Key: "node-role.kubernetes.io/infra", Effect: "NoSchedule"}, {Key: "example.com/gpu", Value: "a100", Effect: "NoExecute"},
				},
				MaxPods: "60",
			},
			func(*clusterv1.MachineDeployment) {},
			map[string]string{
				LabelsAnnotation:  "example.com/a=b,node-role.kubernetes.io/infra=",
				TaintsAnnotation:  "example.com/gpu=a100:NoExecute,node-role.kubernetes.io/infra:NoSchedule",
				MaxPodsAnnotation: "60",
			},
		},
		"NoTaint": {
			"there is no annotation for an empty list",
			bootstrap.WorkerNode{Labels: map[string]string{"node-role.kubernetes.io/worker": ""}},
			func(*clusterv1.MachineDeployment) {},
			map[string]string{LabelsAnnotation: "node-role.kubernetes.io/worker="},
		},
		"Propagated": {
			"labels that Cluster API propagates and taints of Machines are included, each once; other labels are not",
			bootstrap.WorkerNode{
				Labels: map[string]string{"node-role.kubernetes.io/worker": ""},
				Taints: []bootstrapv1.Taint{{Key: "example.com/a", Effect: "NoSchedule"}},
			},
			func(d *clusterv1.MachineDeployment) {
				d.Spec.Template.Labels = map[string]string{
					"node.cluster.x-k8s.io/pool": "p", "x.node.cluster.x-k8s.io/y": "z", "node-restriction.kubernetes.io/r": "1",
					"node-role.kubernetes.io/db": "", "example.com/team": "t", "anode.cluster.x-k8s.io/q": "no",
				}
				d.Spec.Template.Spec.Taints = []clusterv1.MachineTaint{
					{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways},
					{Key: "example.com/b", Value: "c", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationOnInitialization},
				}
			},
			map[string]string{
				LabelsAnnotation: "node-restriction.kubernetes.io/r=1,node-role.kubernetes.io/db=,node-role.kubernetes.io/worker=," +
					"node.cluster.x-k8s.io/pool=p,x.node.cluster.x-k8s.io/y=z",
				TaintsAnnotation: "example.com/a:NoSchedule,example.com/b=c:NoSchedule",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &clusterv1.MachineDeployment{}
			tc.change(d)
			if diff := cmp.Diff(tc.want, expected(d, tc.node)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAnnotate(t *testing.T) {
	const labels, taints = "a=b", "c:NoSchedule"
	both := map[string]string{LabelsAnnotation: labels, TaintsAnnotation: taints}
	const first, record = "labels " + labels, "labels " + labels + ";taints " + taints
	for name, tc := range map[string]struct {
		reason              string
		is, wanted, becomes map[string]string
	}{
		"First": {"the values are added to other annotations", map[string]string{"x": "y"}, both,
			map[string]string{"x": "y", LabelsAnnotation: labels, TaintsAnnotation: taints, WrittenAnnotation: record}},
		"Same": {"nothing changes if the values are up to date", map[string]string{LabelsAnnotation: labels, TaintsAnnotation: taints, WrittenAnnotation: record}, both,
			map[string]string{LabelsAnnotation: labels, TaintsAnnotation: taints, WrittenAnnotation: record}},
		"Less": {"outdated annotations are removed", map[string]string{LabelsAnnotation: labels, TaintsAnnotation: taints, WrittenAnnotation: record},
			map[string]string{LabelsAnnotation: labels}, map[string]string{LabelsAnnotation: labels, WrittenAnnotation: first}},
		"NoGroup": {"annotations are removed if it is no longer a node group", map[string]string{"x": "y", LabelsAnnotation: labels, TaintsAnnotation: taints, WrittenAnnotation: record},
			map[string]string{}, map[string]string{"x": "y"}},
		"Users": {"a user's value is kept", map[string]string{TaintsAnnotation: "mine:NoExecute"}, both,
			map[string]string{LabelsAnnotation: labels, TaintsAnnotation: "mine:NoExecute", WrittenAnnotation: first}},
		"Overwritten": {"a value that a user changed belongs to the user", map[string]string{LabelsAnnotation: labels, TaintsAnnotation: "mine:NoExecute", WrittenAnnotation: record}, both,
			map[string]string{LabelsAnnotation: labels, TaintsAnnotation: "mine:NoExecute", WrittenAnnotation: first}},
		"Removed": {"an annotation that a user removed is added again", map[string]string{LabelsAnnotation: labels, WrittenAnnotation: record}, both,
			map[string]string{LabelsAnnotation: labels, TaintsAnnotation: taints, WrittenAnnotation: record}},
		"UsersNoGroup": {"a user's value is kept if it is not a node group", map[string]string{LabelsAnnotation: "mine=1"}, map[string]string{},
			map[string]string{LabelsAnnotation: "mine=1"}},
		"Garbled": {"an invalid record does not make a user's value ours", map[string]string{LabelsAnnotation: "z=1", WrittenAnnotation: "x;;"}, map[string]string{LabelsAnnotation: labels},
			map[string]string{LabelsAnnotation: "z=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed := annotate(tc.is, tc.wanted)
			if diff := cmp.Diff(tc.becomes, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if want := cmp.Diff(tc.is, tc.becomes) != ""; changed != want {
				t.Errorf("%s: changed is %t", tc.reason, changed)
			}
		})
	}
}
