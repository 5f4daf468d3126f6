package bootstrap_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
)

var _ = Describe("A restored copy of a management cluster", func() {
	const original, restored = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

	It("decides no certificate request and writes no bootstrap data until it takes over", func(ctx SpecContext) {
		b := newBed(ctx)
		cluster := b.cluster(ctx, "blue")
		machine := b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		config, err := b.config(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		fence.For(original).Record(config)
		Expect(b.Update(ctx, config)).To(Succeed())
		b.connect(ctx, "blue")
		b.fence = fence.For(restored)
		b.run(0)
		Eventually(b.config(ctx, "w-1")).Should(WithTransform(func(c *bootstrapv1.NovaConfig) *metav1.Condition {
			return conditions.Get(c, bootstrapv1.DataSecretAvailableCondition)
		}, And(HaveField("Reason", fence.OtherReason), HaveField("Message", ContainSubstring(fence.TakeOverAnnotation+"="+restored)))))
		Eventually(b.events(ctx, "w-1")).Should(ContainElement("Warning " + fence.OtherReason))

		By("requesting a certificate like a node")
		// The management cluster that manages the Cluster grants the permissions to request
		// certificates.
		own := as("system:node:"+machine.Name, "system:nodes", "system:masters")
		serving := ask(ctx, own, certificatesv1.KubeletServingSignerName, machine.Name, certificatesv1.UsageServerAuth, machine.Name)
		Consistently(decisionOn(ctx, serving)).Should(BeEmpty())
		Expect(b.absent(ctx, "w-1")()).To(BeTrue())

		By("taking over")
		before := cluster.DeepCopy()
		metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, fence.TakeOverAnnotation, restored)
		Expect(b.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
		Eventually(decisionOn(ctx, serving)).Should(HavePrefix("Approved"))
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
	})

	It("has a UID that differs from the one recorded with the bootstrap data", func(ctx SpecContext) {
		b := newBed(ctx)
		b.fence = fence.For(original)
		b.run(0)
		b.cluster(ctx, "blue")
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		Eventually(b.config(ctx, "w-1")).Should(And(beAvailable(),
			HaveField("Annotations", HaveKeyWithValue(fence.RecordAnnotation, original))))
	})
})
