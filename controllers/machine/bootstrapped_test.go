package machine_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// haveBooted matches a machine by the condition of its first boot.
func haveBooted(status metav1.ConditionStatus, reason string, message gomegatypes.GomegaMatcher) gomegatypes.GomegaMatcher {
	return WithTransform(condition(infrav1.NodeBootstrappedCondition), And(
		HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", message)))
}

var _ = Describe("The guest's report of its first boot", func() {
	It("is shown, and a failure makes the machine not ready until the node joins", func(ctx SpecContext) {
		rig := up(ctx)
		Expect(condition(infrav1.NodeBootstrappedCondition)(mustSee(machineOf(ctx, rig)))).To(BeZero(), "no condition without a report")

		rig.Hypervisor.SetReport(rig.Key(), hypervisor.Report{Stage: hypervisor.StageRunning, Step: "kubeadm join"})
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(),
			haveBooted(metav1.ConditionUnknown, infrav1.BootstrappingReason, Equal("Current bootstrap step: kubeadm join"))))

		rig.Hypervisor.SetReport(rig.Key(), hypervisor.Report{Stage: hypervisor.StageRetrying, Step: "kubeadm join failed, attempt 1 of 10", Log: "no answer"})
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(),
			haveBooted(metav1.ConditionUnknown, infrav1.BootstrapRetryingReason, HaveSuffix("attempt 1 of 10; end of its log: no answer"))))

		log := strings.Repeat("a line | ", 150) + "the end"
		rig.Hypervisor.SetReport(rig.Key(), hypervisor.Report{Stage: hypervisor.StageFailed, Step: "kubeadm join failed 10 times", Log: log})
		const why = "The node failed to bootstrap: kubeadm join failed 10 times; end of its log: "
		Eventually(machineOf(ctx, rig)).Should(And(
			haveBooted(metav1.ConditionFalse, infrav1.BootstrapFailedReason, Equal(why+log)),
			WithTransform(condition(infrav1.VirtualMachineProvisionedCondition), HaveField("Status", metav1.ConditionTrue)),
			WithTransform(condition(clusterv1.ReadyCondition), And(
				HaveField("Status", metav1.ConditionFalse), HaveField("Reason", infrav1.BootstrapFailedReason), HaveField("Message", why+log))),
			haveBeenProvisioned()))
		Eventually(eventsOf(ctx, rig)).Should(ContainElements(warning(infrav1.BootstrapRetryingReason), warning(infrav1.BootstrapFailedReason)))

		rig.Hypervisor.SetReport(rig.Key(), hypervisor.Report{})
		Expect(rig.Join(ctx)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(), haveBooted(metav1.ConditionTrue, infrav1.NodeJoinedReason, BeEmpty())))
	})

	It("does not make a joined machine not ready", func(ctx SpecContext) {
		rig := up(ctx)
		rig.Hypervisor.SetReport(rig.Key(), hypervisor.Report{Stage: hypervisor.StageUnfinished, Step: "postKubeadmCommands 0000 failed with status 1"})
		failed := haveBooted(metav1.ConditionFalse, infrav1.PostBootstrapFailedReason, HaveSuffix("postKubeadmCommands 0000 failed with status 1"))
		Eventually(machineOf(ctx, rig)).Should(And(beProvisioned(), failed), "before Cluster API knows of the node")
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(warning(infrav1.PostBootstrapFailedReason)))
		Expect(rig.Join(ctx)).To(Succeed())
		Consistently(machineOf(ctx, rig)).Should(And(beProvisioned(), failed))
	})
})

func mustSee[T any](look func() (T, error)) T {
	GinkgoHelper()
	seen, err := look()
	Expect(err).NotTo(HaveOccurred())
	return seen
}
