package modules

import (
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

var _ = Describe("A chart that does not exist", func() {
	It("stops a set before anything changes, and is named with its module", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Sources = append(s.Sources, addonsv1.Source{Name: "charts", Helm: addonsv1.HelmSource{URL: "oci://hub.example/charts"}})
			s.Modules[1] = addonsv1.Module{Name: "web", Source: "charts", Chart: &addonsv1.Chart{Name: "missing", Version: "1.2.3"}}
		})
		const failure = "False SourceNotFetched The source of module web cannot be fetched: the chart was not found in some time. No module is created or changed before"
		Eventually(r.condition(ctx, "a", "base")).Should(Equal(
			failure + "; 2 of 2 modules are not ready: cni: Waiting for the source of web; web: Its source cannot be fetched"))
		Consistently(r.has(ctx, "a")).Should(BeEmpty())
		Expect(fakeClusters.substitutions(r.key("a"))).To(BeEmpty())
		Eventually(func(g Gomega) {
			list := &eventsv1.EventList{}
			g.Expect(testEnv.Client.List(ctx, list, client.InNamespace(r.namespace))).To(Succeed())
			g.Expect(list.Items).To(ContainElement(And(HaveField("Reason", addonsv1.SourceNotFetchedReason), HaveField("Type", "Warning"))))
		}).Should(Succeed())

		By("installing the modules when the chart is corrected")
		change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Spec.Modules[1].Chart.Name = "web" })
		r.allReady(ctx, "a", "cni", "web")
		Eventually(r.condition(ctx, "a", "base")).Should(Equal("True ModulesReady"))

		By("keeping the modules when the next revision has a chart that does not exist")
		change(ctx, set, func(s *addonsv1.NovaModuleSet) {
			s.Spec.Release.Tag, s.Spec.Modules[1].Chart.Version = "v2", "9.9.9-missing"
		})
		Eventually(r.condition(ctx, "a", "base")).Should(Equal(failure))
		Consistently(r.tag(ctx, "a")).Should(Equal("v1"))
		release := &helmv2.HelmRelease{}
		Expect(testEnv.Client.Get(ctx, r.key("a-base-cni"), release)).To(Succeed())
		release.Spec.ReleaseName = "other"
		Expect(testEnv.Client.Update(ctx, release)).To(Succeed())
		Eventually(func() string {
			Expect(testEnv.Client.Get(ctx, r.key("a-base-cni"), release)).To(Succeed())
			return release.Spec.ReleaseName
		}).Should(Equal("cni"), "the modules that run are maintained")
	})

	It("does not keep modules that are turned off", func(ctx SpecContext) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", nil)
		r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Sources = append(s.Sources, addonsv1.Source{Name: "charts", Helm: addonsv1.HelmSource{URL: "oci://hub.example/charts"}})
			s.Modules[1].DependsOn = nil
			s.Modules[1].When = "!('other' in facts.cluster.labels)"
			s.Modules = append(s.Modules, addonsv1.Module{
				Name: "web", When: "'other' in facts.cluster.labels", Source: "charts", Chart: &addonsv1.Chart{Name: "missing", Version: "1.2.3"},
			})
		})
		r.allReady(ctx, "a", "cni", "dns")
		Eventually(r.condition(ctx, "a", "base")).Should(Equal("True ModulesReady"))
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Labels = map[string]string{"other": ""} })
		Eventually(r.condition(ctx, "a", "base")).Should(HavePrefix("False SourceNotFetched"))
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni"))
		Eventually(r.condition(ctx, "a", "base")).Should(HavePrefix("False SourceNotFetched"))
	})
})

var _ = Describe("Charts in an OCI registry", func() {
	It("have one source for all Clusters of a namespace", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		r.cluster(ctx, "b", nil)
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Sources = append(s.Sources, addonsv1.Source{Name: "charts", Helm: addonsv1.HelmSource{URL: "oci://hub.example/charts"}})
			s.Modules = []addonsv1.Module{
				{Name: "cni", Source: "charts", Chart: &addonsv1.Chart{Name: "cni", Version: "1.2.3"}},
				{Name: "dns", Kustomize: &addonsv1.Kustomize{Path: "dns"}, DependsOn: []string{"cni"}},
				{Name: "web", Source: "charts", Chart: &addonsv1.Chart{Name: "web", Version: "1.2.3"}, DependsOn: []string{"dns"}},
			}
		})
		sources := func() map[string]types.UID {
			list := &sourcev1.OCIRepositoryList{}
			Expect(testEnv.Client.List(ctx, list, client.InNamespace(r.namespace))).To(Succeed())
			out := map[string]types.UID{}
			for i := range list.Items {
				out[list.Items[i].Spec.URL] = list.Items[i].UID
			}
			return out
		}
		for _, cluster := range []string{"a", "b"} {
			Eventually(r.has(ctx, cluster)).Should(ConsistOf("cni"))
		}
		first := sources()
		Expect(first).To(HaveLen(2), "all sources are fetched before the first module is written")
		for _, cluster := range []string{"a", "b"} {
			r.allReady(ctx, cluster, "cni", "dns", "web")
			Eventually(r.condition(ctx, cluster, "base")).Should(Equal("True ModulesReady"))
		}
		Expect(sources()).To(Equal(first), "a source is kept until its module is written")
		Expect(sources()).To(And(HaveLen(2), HaveKey("oci://hub.example/charts/cni"), HaveKey("oci://hub.example/charts/web")))
		one, two := r.objects(ctx, "a")["web"].Object.(*helmv2.HelmRelease), r.objects(ctx, "b")["web"].Object.(*helmv2.HelmRelease)
		Expect(one.Spec.Chart).To(BeNil())
		Expect(one.Spec.ChartRef).To(Equal(two.Spec.ChartRef))
		helm := &sourcev1.HelmRepositoryList{}
		Expect(testEnv.Client.List(ctx, helm, client.InNamespace(r.namespace))).To(Succeed())
		Expect(helm.Items).To(BeEmpty())

		By("writing it again after a user deleted it")
		was := sources()["oci://hub.example/charts/web"]
		source := &sourcev1.OCIRepository{}
		Expect(testEnv.Client.Get(ctx, r.key(one.Spec.ChartRef.Name), source)).To(Succeed())
		Expect(testEnv.Client.Delete(ctx, source)).To(Succeed())
		r.touch(ctx, "a")
		Eventually(sources).Should(HaveKeyWithValue("oci://hub.example/charts/web", Not(Equal(was))))

		By("deleting it with the set")
		Expect(testEnv.Client.Delete(ctx, set)).To(Succeed())
		Eventually(sources, "30s").Should(BeEmpty())
	})
})
