package modules

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

func TestDependents(t *testing.T) {
	d := setDependencies{}
	for name, on := range map[string][]string{"storage": {"base"}, "data": {"storage"}, "a": {"b"}, "b": {"a", "base"}} {
		set := &addonsv1.NovaModuleSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
		set.Spec.DependsOn = on
		d.add(set)
	}
	for of, want := range map[string][]string{"base": {"a", "b", "data", "storage"}, "storage": {"data"}, "data": nil, "a": nil, "b": nil} {
		if got := namesOf(d.dependents(key{Namespace: "team", Name: of})); !slices.Equal(got, want) {
			t.Errorf("dependents(%s) = %v, want %v", of, got, want)
		}
	}
	if got := d.dependents(key{Namespace: "other", Name: "base"}); got != nil {
		t.Errorf("sets of another namespace depend on a set of the same name: %v", got)
	}
}

func TestSetsInOrder(t *testing.T) {
	d := setDependencies{}
	for name, on := range map[string][]string{"a": {"z"}, "z": {"m"}, "b": nil} {
		set := &addonsv1.NovaModuleSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
		set.Spec.DependsOn = on
		d.add(set)
	}
	var sets []key
	for _, name := range []string{"a", "b", "m", "z"} {
		sets = append(sets, key{Namespace: "team", Name: name})
	}
	d.inOrder(sets)
	if got := namesOf(sets); !slices.Equal(got, []string{"b", "m", "z", "a"}) {
		t.Errorf("inOrder() = %v", got)
	}
}

var _ = Describe("A set that depends on another", func() {
	oneModule := func(name string, dependsOn ...string) func(*addonsv1.NovaModuleSetSpec) {
		return func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules = []addonsv1.Module{{Name: name, Kustomize: &addonsv1.Kustomize{Path: name}}}
			s.DependsOn = dependsOn
		}
	}
	deleting := func(r *fleetRig, ctx SpecContext, module string) func() bool {
		return func() bool {
			p := r.objects(ctx, "a")[module]
			return p == nil || !p.Object.GetDeletionTimestamp().IsZero()
		}
	}

	It("waits for it on each Cluster before its first module, and not later", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		storage := r.set(ctx, "storage", oneModule("csi", "base"))
		Eventually(r.condition(ctx, "a", "storage")).Should(Equal(fmt.Sprintf(
			"False WaitingForSet Waiting for the set base of spec.dependsOn: no set of this name in the namespace %s selects the Cluster", r.namespace)))
		notRollingOut := fmt.Sprintf("False NotRollingOut 1 of 1 Clusters get their first modules after those of another set: %s/a", r.namespace)
		Eventually(r.status(ctx, "storage", addonsv1.RollingOutCondition)).Should(Equal(notRollingOut))
		base := r.set(ctx, "base", oneModule("cni"))
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni"))
		Eventually(r.condition(ctx, "a", "storage")).Should(Equal("False WaitingForSet Waiting for the set base of spec.dependsOn, which is not ready on the Cluster"))
		Eventually(r.status(ctx, "storage", addonsv1.RollingOutCondition)).Should(Equal(notRollingOut))
		Consistently(r.has(ctx, "a")).Should(ConsistOf("cni"))
		r.allReady(ctx, "a", "cni")
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni", "csi"))
		r.allReady(ctx, "a", "csi")
		Eventually(r.status(ctx, "storage", addonsv1.ReadyCondition)).Should(Equal("True ModulesReady"))
		Eventually(r.status(ctx, "storage", addonsv1.RollingOutCondition)).Should(Equal("False NotRollingOut"))

		By("changing its modules while the other set is not ready")
		change(ctx, base, func(s *addonsv1.NovaModuleSet) { s.Spec.Modules[0].Kustomize.Path = "other" })
		r.flux(ctx, "a", "cni", metav1.ConditionFalse, "broken")
		Eventually(r.condition(ctx, "a", "base")).Should(HavePrefix("False ModulesNotReady"))
		change(ctx, storage, func(s *addonsv1.NovaModuleSet) {
			s.Spec.Modules = append(s.Spec.Modules, addonsv1.Module{Name: "nfs", Kustomize: &addonsv1.Kustomize{}})
		})
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni", "csi", "nfs"))
		r.allReady(ctx, "a", "csi", "nfs")
		Eventually(r.condition(ctx, "a", "storage")).Should(Equal("True ModulesReady"))
	})

	It("is ready without it on a Cluster where all its modules are disabled", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		r.set(ctx, "storage", func(s *addonsv1.NovaModuleSetSpec) {
			oneModule("csi", "base")(s)
			s.Modules[0].When = "facts.nodes.infra > 0"
		})
		Eventually(r.condition(ctx, "a", "storage")).Should(Equal("True ModulesReady"))
		r.workers(ctx, "a", "infra", 1)
		Eventually(r.condition(ctx, "a", "storage")).Should(HavePrefix("False WaitingForSet"))
	})

	It("is removed before it", func(ctx SpecContext) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", map[string]string{"base": "yes"})
		base := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			oneModule("cni")(s)
			s.ClusterSelector.MatchLabels = map[string]string{"base": "yes"}
		})
		storage := r.set(ctx, "storage", oneModule("csi", "base"))
		r.allReady(ctx, "a", "cni", "csi")
		csi := r.objects(ctx, "a")["csi"].Object
		hold(ctx, csi)

		By("unselecting the Cluster")
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Labels = nil })
		Eventually(r.condition(ctx, "a", "base")).Should(Equal(
			"False WaitingForDependents The modules are removed after those of the sets that depend on this set: storage"))
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Labels = map[string]string{"base": "yes"} })
		r.allReady(ctx, "a", "cni")
		Eventually(r.condition(ctx, "a", "base")).Should(Equal("True ModulesReady"))

		By("deleting both, the other set first")
		Expect(testEnv.Client.Delete(ctx, base)).To(Succeed())
		Expect(testEnv.Client.Delete(ctx, storage)).To(Succeed())
		Eventually(deleting(r, ctx, "csi")).Should(BeTrue())
		Consistently(deleting(r, ctx, "cni")).Should(BeFalse())
		Eventually(r.status(ctx, "base", addonsv1.ReadyCondition)).Should(Equal(
			"False Deleting Waiting for the modules of 1 Clusters to be removed; before them those of the sets that depend on this set: storage"))
		release(ctx, csi)
		Eventually(r.has(ctx, "a"), "30s").Should(BeEmpty())
		Eventually(func() bool {
			return apierrors.IsNotFound(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(base), base))
		}, "30s").Should(BeTrue())
		Eventually(r.condition(ctx, "a", "base")).Should(BeEmpty())
	})

	It("is refused with a message that names the cycle", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		base := r.set(ctx, "base", oneModule("cni"))
		r.allReady(ctx, "a", "cni")
		r.set(ctx, "storage", oneModule("csi", "base"))
		r.allReady(ctx, "a", "csi")
		Eventually(r.condition(ctx, "a", "storage")).Should(Equal("True ModulesReady"))
		change(ctx, base, func(s *addonsv1.NovaModuleSet) {
			s.Spec.DependsOn, s.Spec.Modules[0].Kustomize.Path = []string{"storage"}, "other"
		})
		for set, cycle := range map[string]string{"base": "base → storage → base", "storage": "storage → base → storage"} {
			message := "Dependency cycle of sets: " + cycle + ": remove one of them from spec.dependsOn of another"
			Eventually(r.status(ctx, set, addonsv1.ValidCondition)).Should(Equal("False Invalid " + message))
			Eventually(r.condition(ctx, "a", set)).Should(Equal("False Invalid " + message))
		}
		Expect(r.objects(ctx, "a")["cni"].Object.GetGeneration()).To(BeEquivalentTo(1), "its modules are left unchanged")

		By("deleting one of them")
		Expect(testEnv.Client.Delete(ctx, base)).To(Succeed())
		Eventually(r.has(ctx, "a"), "30s").Should(ConsistOf("csi"))
		Eventually(r.status(ctx, "storage", addonsv1.ValidCondition)).Should(Equal("True Valid"))
		Eventually(r.condition(ctx, "a", "storage")).Should(Equal("True ModulesReady"))
	})

	It("cannot name itself", func(ctx SpecContext) {
		r := newRig(ctx)
		set := &addonsv1.NovaModuleSet{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "base"}}
		set.Spec.ClusterSelector = &metav1.LabelSelector{}
		set.Spec.Sources = []addonsv1.Source{{Name: "charts", Helm: addonsv1.HelmSource{URL: "https://charts.example"}}}
		set.Spec.DependsOn = []string{"base"}
		Expect(testEnv.Client.Create(ctx, set)).To(MatchError(ContainSubstring("a set cannot depend on itself: remove its name from spec.dependsOn")))
	})
})
