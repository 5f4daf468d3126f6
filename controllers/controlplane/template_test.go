package controlplane

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
)

var _ = Describe("The machine template", func() {
	It("belongs to the Cluster in addition to its other owners, so that clusterctl moves it", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		own := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: clusterName, UID: cluster.UID}
		other := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "other", UID: "u"}
		template := &vspherev1.NovaVSphereMachineTemplate{}
		Expect(testEnv.Client.Get(ctx, r.key("template"), template)).To(Succeed())
		template.OwnerReferences = []metav1.OwnerReference{other}
		Expect(testEnv.Client.Update(ctx, template)).To(Succeed())

		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(testEnv.Client.Get(ctx, r.key("template"), template)).To(Succeed())
		Expect(template.OwnerReferences).To(ConsistOf(own, other))
		written := template.ResourceVersion
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(testEnv.Client.Get(ctx, r.key("template"), template)).To(Succeed())
		Expect(template.ResourceVersion).To(Equal(written), "it is written once")

		By("going over to another one")
		next := &vspherev1.NovaVSphereMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "next"}, Spec: template.Spec}
		Expect(testEnv.Client.Create(ctx, next)).To(Succeed())
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.MachineTemplate.Spec.InfrastructureRef.Name = "next" })
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(testEnv.Client.Get(ctx, r.key("next"), next)).To(Succeed())
		Expect(next.OwnerReferences).To(ConsistOf(own))
	})
})
