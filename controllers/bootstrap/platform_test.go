package bootstrap_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

var _ = Describe("The settings of nodes and platform", func() {
	It("accept a password's hash from a Secret, and nothing else", func(ctx SpecContext) {
		const hash = "$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2/jctKu9YterLp8wwnSq.qc.eoxqOmSuNp2xS0ktL3nh/"
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{Users: []bootstrapv1.User{
			{Name: "ops", PasswordHashSecretRef: bootstrapv1.KeyReference{Name: "passwords", Key: "ops"}},
		}}})
		Eventually(b.config(ctx, "w-1")).Should(haveState(metav1.ConditionFalse, bootstrapv1.SourceNotFoundReason,
			ContainSubstring("Secret passwords, which user ops names, does not exist")))
		secret := &corev1.Secret{ObjectMeta: b.meta("passwords"), StringData: map[string]string{"ops": "hunter2"}}
		Expect(b.Create(ctx, secret)).To(Succeed())
		Eventually(b.config(ctx, "w-1")).Should(haveState(metav1.ConditionFalse, bootstrapv1.RenderingFailedReason,
			And(ContainSubstring("users[ops].passwordHashSecretRef"), Not(ContainSubstring("hunter2")))))
		secret.StringData = map[string]string{"ops": hash + "\n"}
		Expect(b.Update(ctx, secret)).To(Succeed())
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
		data, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		Expect(nodeConfig(data).Machine.Users).To(ConsistOf(HaveField("PasswordHash", hash)))
	})

	It("keep load balancers that the workload cluster relies on, and reject a scheduler without IPVS", func(ctx SpecContext) {
		b := newBed(ctx)
		cluster := b.cluster(ctx, "blue")
		controlPlane := &controlplanev1.NovaControlPlane{}
		Expect(b.Get(ctx, client.ObjectKeyFromObject(cluster), controlPlane)).To(Succeed())
		controlPlane.Spec.Platform.KubeProxy.Scheduler = "lc"
		Expect(b.Update(ctx, controlPlane)).To(MatchError(ContainSubstring("scheduler is for mode ipvs only")))
		controlPlane.Spec.Platform.KubeProxy = bootstrapv1.KubeProxySpec{}
		controlPlane.Spec.Platform.APIServerLoadBalancer = &bootstrapv1.APIServerLoadBalancerSpec{}
		Expect(b.Update(ctx, controlPlane)).To(Succeed())
		controlPlane.Spec.Platform.APIServerLoadBalancer.Image = "registry.corp/haproxy:3"
		Expect(b.Update(ctx, controlPlane)).To(Succeed())
		refused := MatchError(ContainSubstring("apiServerLoadBalancer cannot be removed"))
		controlPlane.Spec.Platform.APIServerLoadBalancer = nil
		Expect(b.Update(ctx, controlPlane)).To(refused)
		controlPlane.Spec.Platform = bootstrapv1.PlatformSpec{}
		Expect(b.Update(ctx, controlPlane)).To(refused)
	})
})
