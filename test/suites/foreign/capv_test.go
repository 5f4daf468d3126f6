package foreign

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// CAPV takes minutes to build, so it is there only where all suites run.
var _ = func() bool {
	if !everything {
		return false
	}
	return Describe("CAPV", func() {
		It("boots a control plane and a worker of this project on its VMs", func(ctx context.Context) {
			// The cluster is generated from this project's template for vSphere,
			// so that provider is installed too. It is given nothing to do.
			b := start(ctx, bed.Options{
				Name: "foreign-capv", Hypervisors: []string{bed.VSphere}, Providers: append(bed.Providers(bed.VSphere), bed.CAPV),
			})
			c := bed.Cluster{Name: "capv", Namespace: "capv", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.10", CAPV: true}
			Expect(b.Create(ctx, c)).To(Succeed())
			Eventually(func(g Gomega, ctx context.Context) {
				tenant, err := b.TenantClient(ctx, c.Key())
				g.Expect(err).NotTo(HaveOccurred())
				nodes := &corev1.NodeList{}
				g.Expect(tenant.List(ctx, nodes)).To(Succeed())
				g.Expect(nodes.Items).To(HaveEach(WithTransform(ready, BeTrue())))
				g.Expect(nodes.Items).To(HaveLen(c.ControlPlanes + c.Workers))
			}).WithContext(ctx).WithTimeout(readyTimeout).Should(Succeed())
			By("finding the machines' nodes by the IDs of CAPV")
			Eventually(func(g Gomega, ctx context.Context) {
				machines := &clusterv1.MachineList{}
				g.Expect(b.Client.List(ctx, machines, client.InNamespace(c.Namespace))).To(Succeed())
				g.Expect(machines.Items).To(HaveLen(c.ControlPlanes + c.Workers))
				g.Expect(machines.Items).To(HaveEach(HaveField("Status.NodeRef.Name", Not(BeEmpty()))))
			}).WithContext(ctx).WithTimeout(readyTimeout).Should(Succeed())
			cluster := &clusterv1.Cluster{}
			cluster.Namespace, cluster.Name = c.Namespace, c.Name
			Expect(b.Client.Delete(ctx, cluster)).To(Succeed())
			Eventually(func(ctx context.Context) error { return b.Client.Get(ctx, c.Key(), cluster) }).
				WithContext(ctx).WithTimeout(deleteTimeout).Should(MatchError(ContainSubstring("not found")))
		})
	})
}()

func ready(node corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
