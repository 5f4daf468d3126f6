package modules

import (
	"context"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

var _ = Describe("A set on two workload clusters", Ordered, func() {
	var (
		one = bed.Cluster{Name: "one", Namespace: "fleet", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.41"}
		two = bed.Cluster{Name: "two", Namespace: "fleet", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.42"}
		s   *addonsv1.NovaModuleSet
	)

	It("is delivered in order by Flux, whose pods run", func(ctx context.Context) {
		publish(ctx, "v1")
		Expect(b.PublishChart(chart, "1.0.0", map[string]string{"templates/all.yaml": workload, "values.yaml": "serviceIP: \"\"\n"})).To(Succeed())
		for wave, c := range map[string]bed.Cluster{"1": one, "2": two} {
			Expect(b.Create(ctx, c)).To(Succeed())
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
			Expect(b.Client.Patch(ctx, cluster, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"labels":{"`+addonsv1.WaveLabel+`":"`+wave+`"}}}`)))).To(Succeed())
		}
		s = set(one.Namespace, coreDNSImage(ctx, one))
		Expect(b.Client.Create(ctx, s)).To(Succeed())
		for _, c := range []bed.Cluster{one, two} {
			Eventually(condition(ctx, c, "base"), bootTimeout).Should(Equal("True ModulesReady"))
			Eventually(data(ctx, c, greetNS, "greetings"), reportTimeout).Should(And(
				HaveKeyWithValue("release", "v1"), HaveKeyWithValue("zone", "none.test"), HaveKeyWithValue("stage", "vsphere-1"),
				HaveKeyWithValue("cluster", Not(BeEmpty()))))
			deployment := &appsv1.Deployment{}
			Expect(tenant(ctx, Default, c).Get(ctx, client.ObjectKey{Namespace: chartNS, Name: "answers"}, deployment)).To(Succeed())
			Expect(deployment.Status.ReadyReplicas).To(BeEquivalentTo(1))
		}
		Eventually(status(ctx, s, addonsv1.ReadyCondition), reportTimeout).Should(Equal("True ModulesReady"))
	})

	It("writes Nova's substitutions to the workload cluster", func(ctx context.Context) {
		Eventually(data(ctx, one, modules.SubstituteNamespace, modules.SubstituteConfig), reportTimeout).Should(And(
			HaveLen(7), HaveKeyWithValue("controlPlaneTopology", "SingleReplica"), HaveKeyWithValue("infraNodesCount", "0"),
			HaveKeyWithValue("k8sDefaultDnsZone", "cluster.local")))
	})

	It("reverts a change of a user in a workload cluster", func(ctx context.Context) {
		t := tenant(ctx, Default, one)
		cm := &corev1.ConfigMap{}
		Expect(t.Get(ctx, client.ObjectKey{Namespace: greetNS, Name: "greetings"}, cm)).To(Succeed())
		cm.Data["release"] = "none"
		Expect(t.Update(ctx, cm)).To(Succeed())
		Expect(t.Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: chartNS, Name: "answers"}})).To(Succeed())
		Eventually(data(ctx, one, greetNS, "greetings"), reportTimeout).Should(HaveKeyWithValue("release", "v1"))
		Eventually(func() error {
			return t.Get(ctx, client.ObjectKey{Namespace: chartNS, Name: "answers"}, &corev1.Service{})
		}, reportTimeout).Should(Succeed())
	})

	It("takes a release to one wave after the other", func(ctx context.Context) {
		publish(ctx, "v2")
		change(ctx, s, func(spec *addonsv1.NovaModuleSetSpec) { spec.Release.Tag = "v2" })
		// The second wave may follow within a second, and is read after the first.
		Eventually(func(g Gomega) {
			g.Expect(data(ctx, one, greetNS, "greetings")()).To(HaveKeyWithValue("release", "v2"))
			g.Expect(data(ctx, two, greetNS, "greetings")()).To(HaveKeyWithValue("release", "v1"))
		}, deliverTimeout, 50*time.Millisecond).Should(Succeed())
		Eventually(data(ctx, two, greetNS, "greetings"), deliverTimeout).Should(HaveKeyWithValue("release", "v2"))
		Eventually(status(ctx, s, addonsv1.RollingOutCondition), deliverTimeout).Should(Equal("False NotRollingOut"))
		Eventually(status(ctx, s, addonsv1.ReadyCondition), deliverTimeout).Should(Equal("True ModulesReady"))
	})

	It("installs charts of an OCI registry at the pinned version and digest", func(ctx context.Context) {
		digest := push(ctx, "1.0.0", "first")
		byVersion, byDigest := ociSets(one.Namespace, digest)
		Expect(b.Client.Create(ctx, byVersion)).To(Succeed())
		Expect(b.Client.Create(ctx, byDigest)).To(Succeed())
		for _, set := range []string{byVersion.Name, byDigest.Name} {
			Eventually(condition(ctx, one, set), deliverTimeout).Should(Equal("True ModulesReady"))
		}
		for _, release := range []string{"pinned", "ranged", "fixed"} {
			Eventually(data(ctx, one, pushedNS, release), reportTimeout).Should(HaveKeyWithValue("content", "first"))
		}
		charts := &sourcev1.HelmChartList{}
		Expect(b.Client.List(ctx, charts, client.InNamespace(one.Namespace))).To(Succeed())
		Expect(charts.Items).To(HaveLen(2), "Flux makes one for each release of the Helm repository, and none for those of the registry")

		By("pushing a newer version, and the old version again with another content")
		push(ctx, "1.0.0", "moved")
		push(ctx, "1.1.0", "newer")
		Eventually(data(ctx, one, pushedNS, "ranged"), deliverTimeout).Should(HaveKeyWithValue("content", "newer"))
		Eventually(movedTag(ctx, one.Namespace, digest), deliverTimeout).Should(BeTrue(), "Flux has read the moved tag")
		Consistently(func(g Gomega) {
			for _, release := range []string{"pinned", "fixed"} {
				g.Expect(data(ctx, one, pushedNS, release)()).To(HaveKeyWithValue("content", "first"))
			}
		}, "15s").Should(Succeed())

		for _, set := range []*addonsv1.NovaModuleSet{byVersion, byDigest} {
			Expect(b.Client.Delete(ctx, set)).To(Succeed())
			Eventually(func() error { return b.Client.Get(ctx, client.ObjectKeyFromObject(set), set) }, deliverTimeout).ShouldNot(Succeed())
		}
		repositories := &sourcev1.OCIRepositoryList{}
		Expect(b.Client.List(ctx, repositories, client.InNamespace(one.Namespace))).To(Succeed())
		Expect(repositories.Items).To(BeEmpty())
	})

	It("takes a module away that is switched off", func(ctx context.Context) {
		Eventually(data(ctx, one, greetNS, "extra"), reportTimeout).Should(HaveKeyWithValue("release", "v2"))
		change(ctx, s, func(spec *addonsv1.NovaModuleSetSpec) { spec.Modules[2].When = "facts.nodes.infra >= 3" })
		Eventually(data(ctx, one, greetNS, "extra"), deliverTimeout).Should(HaveKeyWithValue("error", ContainSubstring("not found")))
		Eventually(written(ctx, two), deliverTimeout).Should(Equal(2))
	})

	It("deletes an unreachable tenant within its timeout and continues with the other", func(ctx context.Context) {
		h, err := b.Hypervisor(two.Hypervisor)
		Expect(err).NotTo(HaveOccurred())
		machines := &clusterv1.MachineList{}
		Expect(b.Client.List(ctx, machines, client.InNamespace(two.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: two.Name})).To(Succeed())
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: two.Namespace, Name: two.Name}}
		Expect(b.Client.Delete(ctx, cluster)).To(Succeed())
		for i := range machines.Items {
			// It may be gone already.
			_ = h.PowerOff(ctx, machines.Items[i].Name)
		}
		// Twice timeoutSeconds where Flux was at it just then, and until it is
		// looked at again.
		Eventually(written(ctx, two), reportTimeout).Should(BeZero())
		change(ctx, s, func(spec *addonsv1.NovaModuleSetSpec) { spec.Modules[2].When = "" })
		Eventually(data(ctx, one, greetNS, "extra"), deliverTimeout).Should(HaveKeyWithValue("release", "v2"))
		Eventually(func() bool { return apierrors.IsNotFound(b.Client.Get(ctx, two.Key(), cluster)) }, deliverTimeout).Should(BeTrue())
	})

	It("takes all its modules away when it is deleted", func(ctx context.Context) {
		Expect(b.Client.Delete(ctx, s)).To(Succeed())
		Eventually(func() error { return b.Client.Get(ctx, client.ObjectKeyFromObject(s), s) }, deliverTimeout).ShouldNot(Succeed())
		Eventually(data(ctx, one, greetNS, "greetings"), reportTimeout).Should(HaveKeyWithValue("error", ContainSubstring("not found")))
		Expect(written(ctx, one)()).To(BeZero())
		Expect(condition(ctx, one, "base")()).To(BeEmpty())
	})
})
