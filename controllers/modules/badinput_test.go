package modules

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// A set with a mistake in one module changes nothing on a Cluster, not even by its other modules, and the
// condition names the module.
var _ = DescribeTable("Bad input is refused with the name of the module, before anything changes",
	func(ctx SpecContext, edit func(*addonsv1.NovaModuleSetSpec), message string) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", nil)
		change(ctx, cluster, func(c *clusterv1.Cluster) {
			c.Spec.Topology = clusterv1.Topology{Version: "v1.36.3", ClassRef: clusterv1.ClusterClassRef{Name: "class"}}
		})
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Sources = append(s.Sources, addonsv1.Source{Name: "charts", Helm: addonsv1.HelmSource{URL: "oci://hub.example/charts"}})
			s.Modules[1].DependsOn = nil
			edit(s)
		})
		Eventually(r.condition(ctx, "a", "base")).Should(And(HavePrefix("False "), ContainSubstring(message)))
		Consistently(r.has(ctx, "a"), "500ms").Should(BeEmpty())
		Expect(fakeClusters.substitutions(r.key("a"))).To(BeEmpty())

		By("keeping the modules of a Cluster when a change brings the mistake")
		change(ctx, set, func(s *addonsv1.NovaModuleSet) {
			s.Spec.Modules = []addonsv1.Module{
				{Name: "cni", Chart: &addonsv1.Chart{Name: "charts/cni"}},
				{Name: "dns", Kustomize: &addonsv1.Kustomize{Path: "dns"}},
			}
		})
		r.allReady(ctx, "a", "cni", "dns")
		Eventually(r.condition(ctx, "a", "base")).Should(Equal("True ModulesReady"))
		change(ctx, set, func(s *addonsv1.NovaModuleSet) {
			s.Spec.Release.Tag = "v2"
			edit(&s.Spec)
		})
		Eventually(r.condition(ctx, "a", "base")).Should(And(HavePrefix("False "), ContainSubstring(message)))
		Expect(r.has(ctx, "a")()).To(ConsistOf("cni", "dns"))
		Expect(r.tag(ctx, "a")()).To(Equal("v1"))
	},
	Entry("an unknown module", func(s *addonsv1.NovaModuleSetSpec) { s.Modules[1].DependsOn = []string{"none"} },
		`Module "dns" depends on "none", which is not in the set`),
	Entry("a cycle", func(s *addonsv1.NovaModuleSetSpec) {
		s.Modules[0].DependsOn, s.Modules[1].DependsOn = []string{"dns"}, []string{"cni"}
	}, "Dependency cycle of modules: cni → dns → cni"),
	Entry("values of the wrong type", func(s *addonsv1.NovaModuleSetSpec) { s.Modules[0].Chart.ValuesTemplate = "- a" },
		`Module "cni": valuesTemplate`),
	Entry("a condition of the wrong type", func(s *addonsv1.NovaModuleSetSpec) { s.Modules[1].When = "'yes'" },
		`Module "dns": when: compiling "'yes'": it must be a boolean, but has the type string`),
	Entry("a hypervisor that the module does not support", func(s *addonsv1.NovaModuleSetSpec) {
		s.Modules[0].Chart.ValuesTemplate = `{{ if ne .facts.hypervisor.kind "zvirt" }}{{ fail "it needs zVirt or oVirt" }}{{ end }}`
	}, "it needs zVirt or oVirt"),
	Entry("a chart that does not exist", func(s *addonsv1.NovaModuleSetSpec) {
		s.Modules[1] = addonsv1.Module{Name: "dns", Source: "charts", Chart: &addonsv1.Chart{Name: "missing", Version: "1.2.3"}}
	}, "The source of module dns cannot be fetched: the chart was not found"),
)
