package modules

import (
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

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
		Consistently(sources, "500ms").Should(HaveLen(1), "a source is written with its first module")
		for _, cluster := range []string{"a", "b"} {
			r.allReady(ctx, cluster, "cni", "dns", "web")
			Eventually(r.condition(ctx, cluster, "base")).Should(Equal("True ModulesReady"))
		}
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
