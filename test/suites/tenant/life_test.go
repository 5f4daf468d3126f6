package tenant

import (
	"context"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// scaleWorkers sets the number of workers and waits for the nodes.
func scaleWorkers(ctx context.Context, c bed.Cluster, workers int32, timeout time.Duration, meanwhile func(bed.Cluster)) {
	GinkgoHelper()
	md := &clusterv1.MachineDeployment{}
	key := client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}
	Expect(b.Client.Get(ctx, key, md)).To(Succeed())
	before := md.DeepCopy()
	md.Spec.Replicas = &workers
	Expect(b.Client.Patch(ctx, md, client.MergeFrom(before))).To(Succeed())
	meanwhile(c)
	awaitNodes(ctx, c, int(workers)+c.ControlPlanes, timeout)
	// Cluster API leaves the Node of a Machine that is deleted before it knows its Node.
	Eventually(func(g Gomega, ctx context.Context) {
		list := &clusterv1.MachineList{}
		g.Expect(b.Client.List(ctx, list, client.InNamespace(c.Namespace))).To(Succeed())
		g.Expect(list.Items).To(HaveEach(HaveField("Status.NodeRef.Name", Not(BeEmpty()))))
	}).WithContext(ctx).WithTimeout(joinTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
}

// killAll kills every manager that a cluster needs where it stands.
func killAll(c bed.Cluster) {
	GinkgoHelper()
	for _, name := range bed.Providers(c.Hypervisor) {
		Expect(b.Kill(name, syscall.SIGKILL)).To(Succeed())
	}
}

var _ = describeOn(bed.Hypervisors(), "A cluster of one control plane and two workers", func(hypervisor string) {
	c := cluster(hypervisor, "life", 10)
	c.Workers = 2

	It("comes up although every manager is killed on the way", func(ctx context.Context) {
		Expect(b.Create(ctx, c)).To(Succeed())
		By("killing the managers while VMs are being cloned")
		Eventually(vms).WithContext(ctx).WithArguments(c).WithTimeout(reportTimeout).ShouldNot(BeEmpty())
		killAll(c)
		By("killing the managers while the control plane initializes")
		Eventually(func(ctx context.Context) ([]clusterv1.Machine, error) {
			list := &clusterv1.MachineList{}
			err := b.Client.List(ctx, list, client.InNamespace(c.Namespace))
			return list.Items, err
		}).WithContext(ctx).WithTimeout(bootTimeout).Should(ContainElement(HaveField("Spec.ProviderID", Not(BeEmpty()))))
		killAll(c)
		awaitNodes(ctx, c, 3, bootTimeout)
		names, err := vms(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(names).To(HaveLen(3), "no call was repeated into a second VM")
	})

	It("runs CoreDNS and matches nodes with machines", func(ctx context.Context) {
		awaitCoreDNS(ctx, c)
		Eventually(func(g Gomega, ctx context.Context) {
			list := &clusterv1.MachineList{}
			g.Expect(b.Client.List(ctx, list, client.InNamespace(c.Namespace))).To(Succeed())
			g.Expect(list.Items).To(HaveLen(3))
			for _, machine := range list.Items {
				g.Expect(machine.Status.NodeRef.Name).To(Equal(machine.Name))
				g.Expect(machine.Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)))
			}
			cp := &controlplanev1.NovaControlPlane{}
			g.Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-control-plane"}, cp)).To(Succeed())
			g.Expect(message(cp, controlplanev1.AvailableCondition)).To(HavePrefix("True"))
			g.Expect(cp.Status.ReadyReplicas).To(HaveValue(BeEquivalentTo(1)))
			g.Expect(cp.Status.Versions).To(ConsistOf(HaveField("Version", bed.KubernetesVersion)))
		}).WithContext(ctx).WithTimeout(joinTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
	})

	It("scales its workers from two to three to one", func(ctx context.Context) {
		scaleWorkers(ctx, c, 3, joinTimeout, killAll)
		scaleWorkers(ctx, c, 1, deleteTimeout, killAll)
		awaitCoreDNS(ctx, c)
		Eventually(vms).WithContext(ctx).WithArguments(c).WithTimeout(deleteTimeout).Should(HaveLen(2))
	})

	It("leaves nothing when it is deleted and the managers are killed meanwhile", func(ctx context.Context) {
		Expect(b.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: objectMeta(c)})).To(Succeed())
		killAll(c)
		deleteCluster(ctx, c)
	})
}, Ordered)
