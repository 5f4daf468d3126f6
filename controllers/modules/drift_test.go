package modules

import (
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

var _ = Describe("Drift", func() {
	It("is ignored in the fields that a set names, in charts and paths", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		rules := []addonsv1.DriftRule{
			{Paths: []string{"/spec/replicas"}},
			{Paths: []string{"/metadata/annotations/example.com~1seen"}, Target: addonsv1.DriftTarget{Group: "apps.example", Kind: "Web", Namespace: "web", Name: "a"}},
		}
		r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules = []addonsv1.Module{
				{Name: "cni", Chart: &addonsv1.Chart{Name: "cni"}, Drift: addonsv1.Drift{Policy: addonsv1.DriftWarn, Ignore: rules}},
				{Name: "dns", Kustomize: &addonsv1.Kustomize{}, Drift: addonsv1.Drift{Ignore: rules}},
			}
		})
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni", "dns"))
		release := r.objects(ctx, "a")["cni"].Object.(*helmv2.HelmRelease)
		Expect(release.Spec.DriftDetection.Mode).To(Equal(helmv2.DriftDetectionWarn))
		Expect(release.Spec.DriftDetection.Ignore).To(HaveLen(2))
		Expect(release.Spec.DriftDetection.Ignore[0].Target).To(BeNil())
		Expect(release.Spec.DriftDetection.Ignore[1].Target.Group).To(Equal(`apps\.example`), "Flux reads it as a regular expression")
		path := r.objects(ctx, "a")["dns"].Object.(*kustomizev1.Kustomization)
		Expect(path.Spec.Ignore).To(HaveLen(2))
		Expect(path.Spec.Ignore[1].Paths).To(Equal(rules[1].Paths))
		Expect(path.Spec.Ignore[1].Target.Kind).To(Equal("Web"))
	})

	DescribeTable("is refused", func(ctx SpecContext, message string, m addonsv1.Module) {
		m.Name = "web"
		if m.Chart == nil {
			m.Kustomize = &addonsv1.Kustomize{}
		}
		err := testEnv.Client.Create(ctx, &addonsv1.NovaModuleSet{ObjectMeta: metav1.ObjectMeta{Namespace: platformNamespace, Name: "drift"}, Spec: addonsv1.NovaModuleSetSpec{
			ClusterSelector: &metav1.LabelSelector{}, Sources: []addonsv1.Source{{Name: "x", Ref: addonsv1.SourceReference{Kind: addonsv1.GitRepository, Name: "x"}}},
			Modules: []addonsv1.Module{m},
		}}, client.DryRunAll)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("as Warn for a path", "drift.policy is for charts: Flux always reverts changes of the objects of a path", addonsv1.Module{Drift: addonsv1.Drift{Policy: addonsv1.DriftWarn}}),
		Entry("with a path that is no JSON pointer", "paths", addonsv1.Module{Drift: addonsv1.Drift{Ignore: []addonsv1.DriftRule{{Paths: []string{"spec.replicas"}}}}}),
		Entry("with whole objects", "paths", addonsv1.Module{Drift: addonsv1.Drift{Ignore: []addonsv1.DriftRule{{Paths: []string{"/"}}}}}),
		Entry("with a wrong escape", "paths", addonsv1.Module{Drift: addonsv1.Drift{Ignore: []addonsv1.DriftRule{{Paths: []string{"/metadata/annotations/a~b"}}}}}),
		Entry("with a kind that is a pattern", "target.kind", addonsv1.Module{Drift: addonsv1.Drift{Ignore: []addonsv1.DriftRule{{Paths: []string{"/spec"}, Target: addonsv1.DriftTarget{Kind: ".*"}}}}}),
	)
})
