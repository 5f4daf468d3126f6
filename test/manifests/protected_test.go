package manifests

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const protectedAnnotation = "nova-platform.io/protected"

var _ = Describe("a protected object", func() {
	var namespace *corev1.Namespace

	BeforeEach(func(ctx SpecContext) {
		namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "protected-", Annotations: map[string]string{protectedAnnotation: "true"},
		}}
		Expect(server.Client.Create(ctx, namespace)).To(Succeed())
	})

	cluster := func(ctx SpecContext, annotations map[string]string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, GenerateName: "tenant-", Annotations: annotations,
		}}
		c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereCluster", Name: "tenant",
		}
		Expect(server.Client.Create(ctx, c)).To(Succeed())
		return c
	}
	refused := MatchError(And(ContainSubstring("is protected"), ContainSubstring("first remove the annotation nova-platform.io/protected")))

	It("is deleted only after it was taken from its protection", func(ctx SpecContext) {
		// A policy is enforced a moment after it was applied.
		var kept *clusterv1.Cluster
		Eventually(func(g Gomega) {
			kept = cluster(ctx, map[string]string{protectedAnnotation: "true"})
			g.Expect(server.Client.Delete(ctx, kept)).To(refused)
		}).WithContext(ctx).WithTimeout(policyTimeout).Should(Succeed())
		Expect(server.Client.DeleteAllOf(ctx, &clusterv1.Cluster{}, client.InNamespace(namespace.Name))).To(refused)
		Expect(server.Client.Delete(ctx, namespace)).To(refused)

		delete(kept.Annotations, protectedAnnotation)
		Expect(server.Client.Update(ctx, kept)).To(Succeed())
		Expect(server.Client.Delete(ctx, kept)).To(Succeed())
	})

	It("is moved nevertheless", func(ctx SpecContext) {
		moved := cluster(ctx, map[string]string{protectedAnnotation: "true", clusterctlv1.DeleteForMoveAnnotation: ""})
		Expect(server.Client.Delete(ctx, moved)).To(Succeed())
	})

	It("is set exactly for the objects with the annotation", func(ctx SpecContext) {
		Expect(server.Client.Delete(ctx, cluster(ctx, nil))).To(Succeed())
		Expect(server.Client.Delete(ctx, cluster(ctx, map[string]string{protectedAnnotation: "false"}))).To(Succeed())
	})
})
