package modules

import (
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

var _ = Describe("A module that moves to another set", func() {
	const module = "cni"
	only := func(s *addonsv1.NovaModuleSetSpec) { s.Modules = s.Modules[:1] }
	// held creates both sets and holds the release of the first one as Flux does.
	held := func(ctx SpecContext, second func(*addonsv1.NovaModuleSetSpec)) (*fleetRig, *addonsv1.NovaModuleSet, *helmv2.HelmRelease) {
		GinkgoHelper()
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		first := r.set(ctx, "first", only)
		Eventually(r.has(ctx, "a")).Should(ConsistOf(module))
		release := &helmv2.HelmRelease{}
		Expect(testEnv.Client.Get(ctx, r.key("a-first-cni"), release)).To(Succeed())
		hold(ctx, release)
		r.set(ctx, "second", second)
		return r, first, release
	}
	// released waits until the object is deleted, and reports whether it is suspended: then Flux leaves
	// the release in the workload cluster.
	released := func(ctx SpecContext, o *helmv2.HelmRelease) bool {
		GinkgoHelper()
		Eventually(func() bool {
			Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			return o.DeletionTimestamp.IsZero()
		}).Should(BeFalse())
		return o.Spec.Suspend
	}

	It("is taken over without a removal", func(ctx SpecContext) {
		r, first, o := held(ctx, only)
		Eventually(r.condition(ctx, "a", "second")).Should(HavePrefix("False NameConflict"))
		change(ctx, first, func(s *addonsv1.NovaModuleSet) { s.Spec.Modules[0].Name = "other" })
		Expect(released(ctx, o)).To(BeTrue())
		release(ctx, o)
		Eventually(func() error { return testEnv.Client.Get(ctx, r.key("a-second-cni"), &helmv2.HelmRelease{}) }, "30s").Should(Succeed())
	})

	It("is taken over from a set that is deleted, by a set that waits", func(ctx SpecContext) {
		_, first, o := held(ctx, func(s *addonsv1.NovaModuleSetSpec) {
			only(s)
			s.DependsOn = []string{"none"}
		})
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Expect(released(ctx, o)).To(BeTrue())
		release(ctx, o)
	})

	It("is removed if the other set has it off on the Cluster", func(ctx SpecContext) {
		_, first, o := held(ctx, func(s *addonsv1.NovaModuleSetSpec) {
			only(s)
			s.Modules[0].When = "facts.nodes.infra > 5"
		})
		change(ctx, first, func(s *addonsv1.NovaModuleSet) { s.Spec.Modules[0].Name = "other" })
		Expect(released(ctx, o)).To(BeFalse())
		release(ctx, o)
	})

	It("is removed if the other set has it in another namespace", func(ctx SpecContext) {
		_, first, o := held(ctx, func(s *addonsv1.NovaModuleSetSpec) {
			only(s)
			s.Modules[0].TargetNamespace = "elsewhere"
		})
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Expect(released(ctx, o)).To(BeFalse())
		release(ctx, o)
	})

	It("is kept if the facts of the Cluster cannot be read in time", func(ctx SpecContext) {
		r, first, o := held(ctx, func(s *addonsv1.NovaModuleSetSpec) {
			only(s)
			s.Modules[0].When = "facts.nodes.infra > 5"
		})
		change(ctx, first, func(s *addonsv1.NovaModuleSet) { s.Spec.Removal.TimeoutSeconds = 3 })
		cluster := &clusterv1.Cluster{}
		cluster.Namespace, cluster.Name = r.namespace, "a"
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.ControlPlaneRef.APIGroup = "ipam.cluster.x-k8s.io" })
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Eventually(r.condition(ctx, "a", "first")).Should(HavePrefix("False FactsUnreadable The modules are removed when the facts of the Cluster can be read, " +
			"at the latest after 3s: another set may have them. Reading control plane: the group ipam.cluster.x-k8s.io of"))
		Expect(released(ctx, o)).To(BeTrue(), "it is unknown whether the other set has it off")
		Eventually(func(g Gomega) {
			list := &eventsv1.EventList{}
			g.Expect(testEnv.Client.List(ctx, list, client.InNamespace(r.namespace))).To(Succeed())
			g.Expect(list.Items).To(ContainElement(And(HaveField("Reason", addonsv1.FactsUnreadableReason), HaveField("Type", "Warning"),
				HaveField("Note", HavePrefix("first: Module cni is kept in the workload cluster, because another set may have it: Reading control plane")))))
		}).Should(Succeed())
		release(ctx, o)
		Eventually(r.status(ctx, "first", addonsv1.ReadyCondition), "30s").Should(ContainSubstring("not found"))
	})

	It("waits for the facts of the Cluster also if they were unreadable long before", func(ctx SpecContext) {
		r, first, o := held(ctx, only)
		change(ctx, first, func(s *addonsv1.NovaModuleSet) { s.Spec.Removal.TimeoutSeconds = 3 })
		cluster := &clusterv1.Cluster{}
		cluster.Namespace, cluster.Name = r.namespace, "a"
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.ControlPlaneRef.APIGroup = "ipam.cluster.x-k8s.io" })
		Eventually(r.condition(ctx, "a", "first")).Should(HavePrefix("False ModulesNotReady Reading control plane"))
		Consistently(r.condition(ctx, "a", "first"), "4s").Should(HavePrefix("False ModulesNotReady Reading control plane"))
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Eventually(r.condition(ctx, "a", "first")).Should(HavePrefix("False FactsUnreadable"))
		Expect(released(ctx, o)).To(BeTrue())
		release(ctx, o)
	})

	It("is released without the facts of the Cluster if its set does not exist any more", func(ctx SpecContext) {
		r, first, o := held(ctx, only)
		cluster := &clusterv1.Cluster{}
		cluster.Namespace, cluster.Name = r.namespace, "a"
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.ControlPlaneRef.APIGroup = "ipam.cluster.x-k8s.io" })
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Eventually(r.condition(ctx, "a", "first")).Should(HavePrefix("False FactsUnreadable"))
		change(ctx, first, func(s *addonsv1.NovaModuleSet) { s.Finalizers = nil })
		Expect(released(ctx, o)).To(BeTrue())
		release(ctx, o)
	})

	It("is removed without the facts of the Cluster if no other set lists it", func(ctx SpecContext) {
		r, first, o := held(ctx, func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules = s.Modules[1:]
			s.Modules[0].DependsOn = nil
		})
		change(ctx, first, func(s *addonsv1.NovaModuleSet) { s.Spec.Removal.TimeoutSeconds = 3 })
		cluster := &clusterv1.Cluster{}
		cluster.Namespace, cluster.Name = r.namespace, "a"
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.ControlPlaneRef.APIGroup = "ipam.cluster.x-k8s.io" })
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Expect(released(ctx, o)).To(BeFalse())
		release(ctx, o)
	})

	It("is left to a set that cannot be rendered yet", func(ctx SpecContext) {
		r, first, o := held(ctx, func(s *addonsv1.NovaModuleSetSpec) {
			only(s)
			s.Modules[0].Chart.ValuesTemplate = "a: {{ .facts.nothing }}"
		})
		Eventually(r.condition(ctx, "a", "second")).Should(HavePrefix("False Invalid"))
		change(ctx, first, func(s *addonsv1.NovaModuleSet) { s.Spec.Modules[0].Name = "other" })
		Expect(released(ctx, o)).To(BeTrue())
		release(ctx, o)
		second := &addonsv1.NovaModuleSet{}
		second.Namespace, second.Name = r.namespace, "second"
		change(ctx, second, func(s *addonsv1.NovaModuleSet) { s.Spec.Modules[0].Chart.ValuesTemplate = "" })
		Eventually(func() error { return testEnv.Client.Get(ctx, r.key("a-second-cni"), &helmv2.HelmRelease{}) }, "30s").Should(Succeed())
	})

	It("is left to a set that is invalid for another reason", func(ctx SpecContext) {
		r, first, o := held(ctx, func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules[1].DependsOn = []string{"none"}
		})
		Eventually(r.status(ctx, "second", addonsv1.ValidCondition)).Should(HavePrefix("False Invalid"))
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Expect(released(ctx, o)).To(BeTrue())
		release(ctx, o)
	})

	It("is removed if another set is invalid and has other modules", func(ctx SpecContext) {
		r, first, o := held(ctx, func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules = s.Modules[1:]
			s.Modules[0].DependsOn = []string{"none"}
		})
		Eventually(r.status(ctx, "second", addonsv1.ValidCondition)).Should(HavePrefix("False Invalid"))
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Expect(released(ctx, o)).To(BeFalse())
		release(ctx, o)
		Eventually(r.status(ctx, "first", addonsv1.ReadyCondition), "30s").Should(ContainSubstring("not found"))
	})

	It("is left to a set that does not support the Kubernetes version yet", func(ctx SpecContext) {
		_, first, o := held(ctx, func(s *addonsv1.NovaModuleSetSpec) {
			only(s)
			s.Modules[0].Kubernetes = ">=99"
		})
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Expect(released(ctx, o)).To(BeTrue())
		release(ctx, o)
	})
})
