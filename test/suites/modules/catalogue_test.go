package modules

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
	"github.com/nova-platform/cluster-api-provider-nova/test/addons"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

const (
	baseDomain   = "apps.test"
	storageClass = "nova-local-path"
)

// remaining are the objects that stay when the set is deleted: the namespaces that Flux creates for
// charts, and Nova's own variables.
var remaining = []string{
	"ConfigMap nova-csi-drivers/kube-root-ca.crt",
	"ConfigMap nova-gitops/kube-root-ca.crt",
	"ConfigMap nova-gitops/" + modules.SubstituteConfig,
	"Namespace /nova-csi-drivers",
	"Namespace /nova-gitops",
	"ServiceAccount nova-csi-drivers/default",
	"ServiceAccount nova-gitops/default",
}

// selected returns the modules whose programs are built for this suite. The other modules of the
// set run programs that the hosts have.
func selected() []addons.Addon {
	GinkgoHelper()
	all, err := addons.Select("local-path", "metrics-server")
	Expect(err).NotTo(HaveOccurred())
	return all
}

var _ = Describe("The catalogue", Ordered, func() {
	c := bed.Cluster{Name: "names", Namespace: "names", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.43", BaseDomain: baseDomain}
	var (
		s, platform *addonsv1.NovaModuleSet
		image       string
		before      []string
	)

	It("is delivered by Flux, with the values of its sets", func(ctx context.Context) {
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		onInfra(objects)
		Expect(b.Credentials(ctx, c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		image = coreDNSImage(ctx, c)
		Eventually(func() error { return b.CheckCluster(ctx, c) }, bootTimeout).Should(Succeed())
		before, err = inventory(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.PublishCatalogue(ctx, "v1")).To(Succeed())
		s, err = b.CatalogueSet(ctx, c.Namespace, "v1", selected()...)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Client.Create(ctx, s)).To(Succeed())
		Eventually(condition(ctx, c, s.Name), bootTimeout).Should(Equal("True ModulesReady"))
	})

	It("answers names of pods and, in hybrid mode, of the outside", func(ctx context.Context) {
		node := infraNode(ctx, c)
		for _, name := range []string{"nova-console.nova." + baseDomain, "anything." + baseDomain} {
			Eventually(func() string { return ask(ctx, c, image, name) }, reportTimeout).Should(Equal(node))
		}
		Eventually(func() string { return ask(ctx, c, image, "kubernetes.default") }, reportTimeout).
			Should(Equal("10.233.0.1"), "names of the cluster have not changed")

		By("asking the node from outside")
		answer, err := resolve(ctx, node, "nova-grafana-main.nova."+baseDomain)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer).To(ConsistOf(node))
	})

	It("provisions a volume that keeps its data", func(ctx context.Context) {
		t := tenant(ctx, Default, c)
		claim := claimOf("data")
		Expect(t.Create(ctx, claim)).To(Succeed())
		Expect(shell(ctx, c, "write", claim.Name, "echo kept >/data/file; echo written >/dev/termination-log")).To(Equal("written"))
		Expect(shell(ctx, c, "read", claim.Name, "cat /data/file >/dev/termination-log")).To(Equal("kept"))

		By("deleting the claim, which removes the volume and its directory")
		Expect(t.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		Expect(claim.Spec.VolumeName).NotTo(BeEmpty())
		Expect(t.Delete(ctx, claim)).To(Succeed())
		Eventually(func() error { return getVolume(ctx, t, claim.Spec.VolumeName) }, reportTimeout).
			Should(Satisfy(apierrors.IsNotFound))
	})

	It("measures nodes and pods, and scales by a metric", func(ctx context.Context) {
		Eventually(measured(ctx, c, "NodeMetrics", ""), reportTimeout).Should(HaveLen(2), "nodes that are measured")
		Eventually(measured(ctx, c, "PodMetrics", metav1.NamespaceSystem), reportTimeout).Should(ContainElement(HavePrefix("metrics-server-")))

		By("running a Deployment that uses more than its target")
		t := tenant(ctx, Default, c)
		load, scaler := busy()
		Expect(t.Create(ctx, load)).To(Succeed())
		Expect(t.Create(ctx, scaler)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(t.Get(ctx, client.ObjectKeyFromObject(scaler), scaler)).To(Succeed())
			g.Expect(scaler.Status.CurrentMetrics).NotTo(BeEmpty())
			g.Expect(t.Get(ctx, client.ObjectKeyFromObject(load), load)).To(Succeed())
			g.Expect(load.Status.ReadyReplicas).To(BeEquivalentTo(2))
		}, deliverTimeout).Should(Succeed())

		By("ending the load")
		loaded := load.DeepCopy()
		load.Spec.Template.Spec.Containers[0].Command = []string{"sleep", "infinity"}
		Expect(t.Patch(ctx, load, client.MergeFrom(loaded))).To(Succeed())
		Eventually(scaledStatus(ctx, t, load), deliverTimeout).Should(HaveField("Replicas", BeEquivalentTo(1)))
		Expect(t.Delete(ctx, scaler)).To(Succeed())
		Expect(t.Delete(ctx, load)).To(Succeed())
	})

	It("moves modules to another set without a removal", func(ctx context.Context) { platform = move(ctx, c, s) })

	It("leaves nothing of its modules when the sets are deleted", func(ctx context.Context) {
		t := tenant(ctx, Default, c)
		for _, set := range []*addonsv1.NovaModuleSet{platform, s} {
			Expect(b.Client.Delete(ctx, set)).To(Succeed())
			Eventually(func() error { return b.Client.Get(ctx, client.ObjectKeyFromObject(set), set) }, deliverTimeout).Should(Satisfy(apierrors.IsNotFound))
		}
		Expect(written(ctx, c)()).To(BeZero())
		Expect(t.Get(ctx, client.ObjectKey{Name: storageClass}, &storagev1.StorageClass{})).To(Satisfy(apierrors.IsNotFound))
		Expect(apiService(ctx, t)).To(Satisfy(apierrors.IsNotFound))
		for _, a := range selected() {
			Expect(releases(ctx, t, a.Module)).To(BeEmpty(), "records of Helm")
		}
		Eventually(added(ctx, c, before), reportTimeout).Should(ConsistOf(remaining))
	})
})
