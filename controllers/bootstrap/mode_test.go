package bootstrap_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

var _ = Describe("Machines of a NovaControlPlane", func() {
	It("waits to be told which of them initialises", func(ctx SpecContext) {
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
			Eventually(b.config(ctx, name)).Should(haveState(metav1.ConditionFalse, bootstrapv1.WaitingForControlPlaneReason, ContainSubstring("which machine initialises")))
			Expect(b.absent(ctx, name)()).To(BeTrue())
		}

		Expect(initlock.Give(ctx, b.Client, cluster, "", "cp-2", time.Now())).To(Succeed())
		for name, want := range map[string]string{"cp-1": "JoinControlPlane", "cp-2": "Init"} {
			Eventually(b.config(ctx, name)).Should(beAvailable())
			secret, err := b.secret(ctx, name)()
			Expect(err).NotTo(HaveOccurred())
			Expect(mode(secret)).To(Equal(want))
		}
	})
})
