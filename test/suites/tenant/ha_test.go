package tenant

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

func objectMeta(c bed.Cluster) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace}
}

var _ = describeOn(firstOnly(), "A cluster of three control planes", func(hypervisor string) {
	c := cluster(hypervisor, "ha", 11)
	c.ControlPlanes = 3

	It("comes up with three voters in etcd", func(ctx context.Context) {
		Expect(b.Create(ctx, c)).To(Succeed())
		awaitNodes(ctx, c, 3, bootTimeout)
		Eventually(func(g Gomega, ctx context.Context) {
			machines := controlPlaneMachines(ctx, c)
			g.Expect(machines).To(HaveLen(3))
			for _, machine := range machines {
				g.Expect(machine.Status.NodeRef.IsDefined()).To(BeTrue())
			}
			health, err := etcdHealth(ctx, c, machines)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(health.Members).To(HaveLen(3))
			for _, member := range health.Members {
				g.Expect(member.Learner).To(BeFalse())
				g.Expect(member.Answers).To(BeTrue())
			}
			cp := &controlplanev1.NovaControlPlane{}
			g.Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-control-plane"}, cp)).To(Succeed())
			g.Expect(cp.Status.ReadyReplicas).To(HaveValue(BeEquivalentTo(3)))
			g.Expect(message(cp, controlplanev1.EtcdClusterHealthyCondition)).To(HavePrefix("True"))
		}).WithContext(ctx).WithTimeout(joinTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
	})

	It("answers with one host killed, and takes it back", func(ctx context.Context) {
		victim := controlPlaneMachines(ctx, c)[0]
		Expect(on(c).PowerOff(ctx, victim.Name)).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			names, err := readyNodes(ctx, c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(names).NotTo(BeEmpty())
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed(), "the address moved to another control plane")
		By("a stopped VM is started again, and its etcd member with it")
		awaitNodes(ctx, c, 3, joinTimeout)
		Eventually(func(ctx context.Context) (bool, error) {
			health, err := etcdHealth(ctx, c, controlPlaneMachines(ctx, c))
			if err != nil {
				return false, err
			}
			return len(health.Problems(nodeNames(ctx, c))) == 0, nil
		}).WithContext(ctx).WithTimeout(joinTimeout).Should(BeTrue())
	})

	It("leaves nothing when it is deleted", func(ctx context.Context) {
		deleteCluster(ctx, c)
	})
}, Ordered)

// nodeNames returns the names of the control plane nodes.
func nodeNames(ctx context.Context, c bed.Cluster) []string {
	var names []string
	for _, machine := range controlPlaneMachines(ctx, c) {
		names = append(names, machine.Status.NodeRef.Name)
	}
	return names
}
