package controlplane

import (
	"context"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// stopProvider stops the infrastructure provider, so that it does not start VMs that were powered
// off, until the spec ends or the returned function is called.
func stopProvider(c *bed.Cluster) (goOn func()) {
	GinkgoHelper()
	provider := hypervisor(c).Facts().Provider
	Expect(b.Kill(provider, syscall.SIGSTOP)).To(Succeed())
	goOn = func() {
		GinkgoHelper()
		Expect(b.Kill(provider, syscall.SIGCONT)).To(Succeed())
	}
	DeferCleanup(goOn)
	return goOn
}

// destroy takes a VM away behind the provider's back.
func destroy(ctx context.Context, c *bed.Cluster, vm string) {
	GinkgoHelper()
	goOn := stopProvider(c)
	Expect(hypervisor(c).PowerOff(ctx, vm)).To(Succeed())
	Expect(hypervisor(c).Destroy(ctx, vm)).To(Succeed())
	goOn()
}

var _ = describeFull("A control plane that loses hosts", func() {
	c, p := cluster("lossy", 25, 3, 0), &promises{}

	BeforeAll(func(ctx context.Context) {
		create(ctx, c)
	})

	It("is repaired by a MachineHealthCheck when a host is destroyed", func(ctx context.Context) {
		check := &clusterv1.MachineHealthCheck{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name},
			Spec: clusterv1.MachineHealthCheckSpec{
				ClusterName: c.Name,
				Selector:    metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}},
				Checks: clusterv1.MachineHealthCheckChecks{UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To(int32(5))},
				}},
			},
		}
		Expect(b.Client.Create(ctx, check)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(b.Client.Delete(ctx, check)).To(Succeed()) })
		victim := names(ctx, c)[0]
		started := time.Now()
		keepingQuorum(ctx, c, func() {
			destroy(ctx, c, victim)
			replaced(ctx, c, victim)
		})
		figuref("a destroyed control plane host was replaced in %.0f s", time.Since(started).Seconds())
	})

	It("reports within seconds that quorum is lost and how to recover, and changes nothing", func(ctx context.Context) {
		before := names(ctx, c)
		goOn := stopProvider(c)
		for _, victim := range before[:2] {
			Expect(hypervisor(c).PowerOff(ctx, victim)).To(Succeed())
		}
		lost := time.Now()
		Eventually(func(g Gomega, ctx context.Context) {
			cp, err := b.ControlPlane(ctx, *c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(conditions.IsFalse(cp, controlplanev1.AvailableCondition)).To(BeTrue())
		}).WithContext(ctx).WithTimeout(reportTimeout).WithPolling(200*time.Millisecond).Should(Succeed(), func() string { return story(ctx, c) })
		took := time.Since(lost)
		p.withinf(truth, took, "Available false %.1f s after quorum was lost", took.Seconds())
		Eventually(func(g Gomega, ctx context.Context) {
			cp, err := b.ControlPlane(ctx, *c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(conditions.GetMessage(cp, controlplanev1.AvailableCondition)).To(ContainSubstring("restore etcd"))
		}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), func() string { return story(ctx, c) })
		By("asking for something that needs quorum")
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Rollout.After = ptr.To(metav1.Now()) })
		Consistently(func(ctx context.Context) []string { return names(ctx, c) }).
			WithContext(ctx).WithTimeout(20 * time.Second).Should(Equal(before))
		for _, machine := range machines(ctx, c) {
			Expect(machine.DeletionTimestamp.IsZero()).To(BeTrue())
		}
		By("letting the hosts come back")
		goOn()
		started := time.Now()
		replaced(ctx, c, before...)
		figuref("healthy and rolled out %.0f s after the hosts were let back", time.Since(started).Seconds())
	})

	It("leaves nothing when it is deleted with quorum lost", func(ctx context.Context) {
		goOn := stopProvider(c)
		for _, victim := range names(ctx, c)[:2] {
			Expect(hypervisor(c).PowerOff(ctx, victim)).To(Succeed())
		}
		Expect(b.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}})).To(Succeed())
		goOn()
		deleteCluster(ctx, c)
	})

	p.kept()
})

var _ = describeFull("A cluster that is deleted before it is up", func() {
	// deleteWhen deletes a cluster as soon as it is so far.
	deleteWhen := func(ctx context.Context, c *bed.Cluster, far func(Gomega, []clusterv1.Machine)) {
		GinkgoHelper()
		Eventually(func(g Gomega, ctx context.Context) {
			found, _, err := b.Machines(ctx, *c)
			g.Expect(err).NotTo(HaveOccurred())
			far(g, found)
		}).WithContext(ctx).WithTimeout(bootTimeout).WithPolling(200*time.Millisecond).Should(Succeed(), func() string { return story(ctx, c) })
		deleteCluster(ctx, c)
	}

	It("leaves nothing while its first control plane initializes", func(ctx context.Context) {
		c := cluster("initial", 26, 3, 1)
		Expect(b.Create(ctx, *c)).To(Succeed())
		deleteWhen(ctx, c, func(g Gomega, found []clusterv1.Machine) {
			g.Expect(found).To(ContainElement(HaveField("Spec.ProviderID", Not(BeEmpty()))))
		})
	})

	It("leaves nothing while it scales up", func(ctx context.Context) {
		c := cluster("growing", 27, 1, 0)
		create(ctx, c)
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Replicas = ptr.To(int32(3)) })
		deleteWhen(ctx, c, func(g Gomega, found []clusterv1.Machine) {
			g.Expect(len(found)).To(BeNumerically(">", 1))
			g.Expect(found).To(ContainElement(And(
				HaveField("Status.NodeRef.Name", BeEmpty()), HaveField("Spec.ProviderID", Not(BeEmpty())))))
		})
	})
})
