package puppet

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
)

func TestReconcile(t *testing.T) {
	type objects struct {
		cluster *clusterv1.Cluster
		machine *clusterv1.Machine
		config  *bootstrapv1.NovaConfig
	}
	for name, tc := range map[string]struct {
		change func(*objects)
		node   *corev1.Node
		apart  bool
		want   string
	}{
		"Applied":      {node: nodeWith(&corev1.NodeCondition{Status: "True", Reason: "Applied"}), want: "Applied"},
		"Failed":       {node: nodeWith(&corev1.NodeCondition{Status: "False", Reason: "ResourceFailed", Message: "x"}), want: "ResourceFailed"},
		"NoReport":     {node: nodeWith(nil), want: "NotReported"},
		"NoNode":       {want: "NotReported"},
		"Disconnected": {apart: true},
		"OtherNode":    {change: func(o *objects) { o.machine.Status.NodeRef.Name = "another" }, node: nodeWith(&corev1.NodeCondition{Status: "True", Reason: "Applied"}), want: "NotReported"},
		"NotJoined":    {change: func(o *objects) { o.machine.Status.NodeRef.Name = "" }},
		"NoPuppet":     {change: func(o *objects) { o.config.Finalizers = nil }},
		"OtherConfig":  {change: func(o *objects) { o.machine.Spec.Bootstrap.ConfigRef.Kind = "KubeadmConfig" }},
		"Paused":       {change: func(o *objects) { o.machine.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			meta := metav1.ObjectMeta{Namespace: "team-a", Name: "w-1", Labels: map[string]string{clusterv1.ClusterNameLabel: "blue"}}
			o := &objects{
				cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "blue"}},
				machine: &clusterv1.Machine{ObjectMeta: *meta.DeepCopy()}, config: &bootstrapv1.NovaConfig{ObjectMeta: *meta.DeepCopy()},
			}
			o.config.Finalizers = []string{bootstrapv1.PuppetFinalizer}
			o.machine.Spec.ClusterName = "blue"
			o.machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfig", Name: "w-1"}
			o.machine.Status.NodeRef.Name = "w-1"
			if tc.change != nil {
				tc.change(o)
			}
			c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(o.cluster, o.machine, o.config).WithStatusSubresource(o.machine).Build()
			workload := fake.NewClientBuilder().WithScheme(newScheme(t))
			if tc.node != nil {
				workload = workload.WithObjects(tc.node)
			}
			connected := client.ObjectKeyFromObject(o.cluster)
			if tc.apart {
				connected.Name = "another"
			}
			r := &Reconciler{Client: c, WorkloadClusters: clustercache.NewFakeClusterCache(workload.Build(), connected, controllerName), Fence: fence.Fence{}}
			result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o.machine)})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.IsZero()).To(BeTrue())
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(o.machine), o.machine)).To(Succeed())
			got := conditions.Get(o.machine, bootstrapv1.ConfigurationAppliedCondition)
			if tc.want == "" {
				g.Expect(got).To(BeNil())
				return
			}
			g.Expect(got).NotTo(BeNil())
			g.Expect(got.Reason).To(Equal(tc.want))
		})
	}
}
