package manifests

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

const cniLabel = "addons.cluster.x-k8s.io/cni"

var _ = Describe("the CNI of a Cluster with modules", func() {
	// labels returns those of a CNI. An empty name is a Cluster without the label.
	labels := func(cni string) map[string]string {
		if cni == "" {
			return map[string]string{"stage": "test"}
		}
		return map[string]string{"stage": "test", cniLabel: cni}
	}
	create := func(ctx SpecContext, cni string, status clusterv1.ClusterStatus) *clusterv1.Cluster {
		GinkgoHelper()
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cni-"}}
		Expect(server.Client.Create(ctx, namespace)).To(Succeed())
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "tenant", Labels: labels(cni)}}
		c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereCluster", Name: "tenant",
		}
		Expect(server.Client.Create(ctx, c)).To(Succeed())
		c.Status = status
		Expect(server.Client.Status().Update(ctx, c)).To(Succeed())
		return c
	}
	change := func(ctx SpecContext, c *clusterv1.Cluster, cni string) error {
		changed := c.DeepCopy()
		changed.Labels = labels(cni)
		return server.Client.Patch(ctx, changed, client.MergeFrom(c), client.DryRunAll)
	}
	initialized := true
	running := clusterv1.ClusterStatus{
		Initialization: clusterv1.ClusterInitializationStatus{ControlPlaneInitialized: &initialized},
		Conditions: []metav1.Condition{{
			Type: addonsv1.ClusterCondition("base"), Status: metav1.ConditionTrue, Reason: addonsv1.ReadyReason, LastTransitionTime: metav1.Now(),
		}},
	}
	refused := func(before, after string) gomegatypes.GomegaMatcher {
		return MatchError(ContainSubstring("the module " + after + " would be installed beside the module " + before + ", which stays in the workload cluster"))
	}

	DescribeTable("does not change to another one of the catalogue", func(ctx SpecContext, before, after string, want gomegatypes.GomegaMatcher) {
		c := create(ctx, before, running)
		// A policy is enforced a moment after it was applied.
		Eventually(func() error { return change(ctx, c, after) }).WithContext(ctx).WithTimeout(policyTimeout).Should(want)
	},
		Entry("from the default", "", "calico", refused("cilium", "calico")),
		Entry("from Cilium", "cilium", "calico", refused("cilium", "calico")),
		Entry("to Cilium", "calico", "cilium", refused("calico", "cilium")),
		Entry("to the default, without the label", "calico", "", refused("calico", "cilium")),
	)

	DescribeTable("changes where no CNI is added beside another", func(ctx SpecContext, before, after string, status clusterv1.ClusterStatus) {
		// The policy is enforced when it refuses this change.
		Eventually(func() error { return change(ctx, create(ctx, "cilium", running), "calico") }).WithContext(ctx).WithTimeout(policyTimeout).
			Should(refused("cilium", "calico"))
		Expect(change(ctx, create(ctx, before, status), after)).To(Succeed())
	},
		Entry("the default is named", "", "cilium", running),
		Entry("the cluster gets one of its own", "cilium", "none", running),
		Entry("the cluster had one of its own", "none", "calico", running),
		Entry("no set has written modules yet", "", "calico", clusterv1.ClusterStatus{Initialization: running.Initialization}),
		Entry("the control plane is not initialized", "", "calico", clusterv1.ClusterStatus{Conditions: running.Conditions}),
	)
})
