package bootstrap_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

var _ = Describe("Machines of a NovaControlPlane", func() {
	It("wait for the choice of the machine that initializes the cluster", func(ctx SpecContext) {
		b := newBed(ctx)
		cluster := b.cluster(ctx, "blue")
		controlPlane := &controlplanev1.NovaControlPlane{}
		Expect(b.Get(ctx, b.key("blue"), controlPlane)).To(Succeed())
		owner := *metav1.NewControllerRef(controlPlane, controlplanev1.GroupVersion.WithKind("NovaControlPlane"))
		for _, name := range []string{"cp-1", "cp-2"} {
			machine := b.machine(ctx, "blue", name, true, bootstrapv1.NovaConfigSpec{})
			before := machine.DeepCopy()
			machine.OwnerReferences = []metav1.OwnerReference{owner}
			Expect(b.Patch(ctx, machine, client.MergeFrom(before))).To(Succeed())
		}
		b.run(0)
		for _, name := range []string{"cp-1", "cp-2"} {
			Eventually(b.config(ctx, name)).Should(haveState(metav1.ConditionFalse, bootstrapv1.WaitingForControlPlaneReason, ContainSubstring("machine that initializes")))
			Expect(b.absent(ctx, name)()).To(BeTrue())
		}

		Expect(initlock.Assign(ctx, b.Client, cluster, "", "cp-2", time.Now())).To(Succeed())
		for name, want := range map[string]string{"cp-1": "JoinControlPlane", "cp-2": "Init"} {
			Eventually(b.config(ctx, name)).Should(beAvailable())
			secret, err := b.secret(ctx, name)()
			Expect(err).NotTo(HaveOccurred())
			Expect(mode(secret)).To(Equal(want))
		}
	})

	It("do not boot with the certificates of a former cluster of the same name", func(ctx SpecContext) {
		b := newBed(ctx)
		former := b.cluster(ctx, "blue")
		ca := &corev1.Secret{}
		Expect(b.Get(ctx, b.key("blue-ca"), ca)).To(Succeed())
		Expect(b.Delete(ctx, former)).To(Succeed())
		Expect(b.Delete(ctx, &controlplanev1.NovaControlPlane{ObjectMeta: b.meta("blue")})).To(Succeed())
		cluster := b.bareCluster(ctx, "blue")
		b.provision(ctx, cluster)
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		b.run(0)
		Eventually(b.config(ctx, "w-1")).Should(haveState(metav1.ConditionFalse, bootstrapv1.WaitingForCertificatesReason, ContainSubstring("former cluster")))
		Expect(b.absent(ctx, "w-1")()).To(BeTrue())

		// This replaces the garbage collector, which does not run here.
		Expect(b.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(b.namespace))).To(Succeed())
		b.certificates(ctx, cluster)
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
	})
})
