package modules

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

const fluxFinalizer = "finalizers.fluxcd.io"

// hold adds Flux' finalizer to an object, as Flux does when it sees the object.
func hold(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Eventually(func() error {
		if err := testEnv.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		controllerutil.AddFinalizer(o, fluxFinalizer)
		return testEnv.Client.Update(ctx, o)
	}).Should(Succeed())
}

func release(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Eventually(func() error {
		if err := testEnv.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return client.IgnoreNotFound(err)
		}
		controllerutil.RemoveFinalizer(o, fluxFinalizer)
		return client.IgnoreNotFound(testEnv.Client.Update(ctx, o))
	}).Should(Succeed())
}

var _ = Describe("A set", func() {
	It("delivers its modules in order and reports", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		r.set(ctx, "base", nil)

		By("writing a module that depends on another kind only after that is ready")
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni"))
		Consistently(r.has(ctx, "a")).Should(ConsistOf("cni"))
		Eventually(r.condition(ctx, "a", "base")).Should(Equal(
			"False ModulesNotReady 2 of 2 modules are not ready: cni: Waiting for Flux; dns: Waiting for cni"))
		r.flux(ctx, "a", "cni", metav1.ConditionFalse, "Helm install failed after 3.25s: no room.")
		Eventually(r.condition(ctx, "a", "base")).Should(ContainSubstring("cni: Helm install failed after some time: no room; dns"))
		r.allReady(ctx, "a", "cni", "dns")
		Eventually(r.condition(ctx, "a", "base")).Should(Equal("True ModulesReady"))
		Eventually(r.status(ctx, "base", addonsv1.ReadyCondition)).Should(Equal("True ModulesReady"))

		Eventually(func(g Gomega) {
			set := &addonsv1.NovaModuleSet{}
			g.Expect(testEnv.Client.Get(ctx, r.key("base"), set)).To(Succeed())
			g.Expect(set.Status.Clusters).To(HaveValue(BeEquivalentTo(1)))
			g.Expect(set.Status.ReadyClusters).To(HaveValue(BeEquivalentTo(1)))
			g.Expect(set.Status.UpdatedClusters).To(HaveValue(BeEquivalentTo(1)))
		}).Should(Succeed())

		By("writing Nova's substitutions to the workload cluster")
		Expect(fakeClusters.substitutions(r.key("a"))).To(HaveKeyWithValue("controlPlaneTopology", "SingleReplica"))

		By("using the kubeconfig of the workload cluster and one source for the namespace")
		hr := &helmv2.HelmRelease{}
		Expect(testEnv.Client.Get(ctx, r.key("a-base-cni"), hr)).To(Succeed())
		Expect(hr.Spec.KubeConfig.SecretRef.Name).To(Equal("a-kubeconfig"))
		sources := &sourcev1.GitRepositoryList{}
		Expect(testEnv.Client.List(ctx, sources, client.InNamespace(r.namespace))).To(Succeed())
		Expect(sources.Items).To(HaveLen(1))
		Expect(sources.Items[0].Spec.Reference.Tag).To(Equal("v1"))

		By("writing nothing while nothing changes")
		before := hr.ResourceVersion
		change(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "a"}}, func(c *clusterv1.Cluster) {
			c.Annotations = map[string]string{"seen": "again"}
		})
		Consistently(func() string {
			Expect(testEnv.Client.Get(ctx, r.key("a-base-cni"), hr)).To(Succeed())
			return hr.ResourceVersion
		}).Should(Equal(before))

		By("reverting a user's change")
		hr.Spec.ReleaseName = "other"
		Expect(testEnv.Client.Update(ctx, hr)).To(Succeed())
		Eventually(func() string {
			Expect(testEnv.Client.Get(ctx, r.key("a-base-cni"), hr)).To(Succeed())
			return hr.Spec.ReleaseName
		}).Should(Equal("cni"))
	})

	It("makes Flux check the dependencies of a module at once when they are ready", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules[0].Chart, s.Modules[0].Kustomize = nil, &addonsv1.Kustomize{Path: "cni"}
		})
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni", "dns"))
		kustomization := func(module string) *kustomizev1.Kustomization {
			return r.objects(ctx, "a")[module].Object.(*kustomizev1.Kustomization)
		}
		requested := func() string { return kustomization("dns").Annotations[fluxmeta.ReconcileRequestAnnotation] }
		r.fluxReports(ctx, "a", "dns", metav1.ConditionFalse, fluxmeta.DependencyNotReadyReason, "dependency is not ready")
		r.flux(ctx, "a", "cni", metav1.ConditionUnknown, "Running health checks")
		Consistently(requested).Should(BeEmpty())
		r.allReady(ctx, "a", "cni")
		Eventually(requested).Should(Equal(conditions.Get(kustomization("cni"), clusterv1.ReadyCondition).LastTransitionTime.UTC().Format(time.RFC3339)))

		By("writing nothing more, also if Flux needs its time")
		before := kustomization("dns").ResourceVersion
		r.touch(ctx, "a")
		Consistently(func() string { return kustomization("dns").ResourceVersion }).Should(Equal(before))
		r.allReady(ctx, "a", "dns")
		Eventually(r.condition(ctx, "a", "base")).Should(Equal("True ModulesReady"))
		before = kustomization("dns").ResourceVersion
		r.touch(ctx, "a")
		Consistently(func() string { return kustomization("dns").ResourceVersion }).Should(Equal(before))
	})

	It("waits for the workload cluster before it writes anything", func(ctx SpecContext) {
		r := newRig(ctx)
		fakeClusters.setUnreachable(r.key("a"), true)
		r.cluster(ctx, "a", nil)
		r.cluster(ctx, "b", nil)
		r.set(ctx, "base", nil)
		Eventually(r.condition(ctx, "a", "base")).Should(Equal("False ClusterUnreachable The workload cluster cannot be reached: the API server does not respond"))
		Eventually(r.has(ctx, "b")).Should(ConsistOf("cni"))
		Expect(r.has(ctx, "a")()).To(BeEmpty())
		fakeClusters.setUnreachable(r.key("a"), false)
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni"))
	})

	It("enables modules by facts", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		md := r.workers(ctx, "a", "infra", 2)
		r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules = []addonsv1.Module{
				{Name: "thanos", When: "facts.nodes.infra >= 3", Kustomize: &addonsv1.Kustomize{Path: "thanos"}},
				{Name: "web", Kustomize: &addonsv1.Kustomize{Path: "web"}, DependsOn: []string{"thanos"}},
			}
		})
		Eventually(r.has(ctx, "a")).Should(ConsistOf("web"))
		change(ctx, md, func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = ptr.To[int32](3) })
		Eventually(r.has(ctx, "a")).Should(ConsistOf("web", "thanos"))
		Eventually(func() []kustomizev1.DependencyReference {
			return r.objects(ctx, "a")["web"].Object.(*kustomizev1.Kustomization).Spec.DependsOn
		}).Should(HaveLen(1))
		change(ctx, md, func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = ptr.To[int32](1) })
		Eventually(r.has(ctx, "a"), "30s").Should(ConsistOf("web"))
	})

	It("is done with a Cluster if all its modules are disabled", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules = []addonsv1.Module{{Name: "thanos", When: "facts.nodes.infra >= 3", Kustomize: &addonsv1.Kustomize{Path: "thanos"}}}
		})
		for _, tag := range []string{"v1", "v2"} {
			change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Spec.Release.Tag = tag })
			Eventually(func(g Gomega) {
				g.Expect(testEnv.Client.Get(ctx, r.key("base"), set)).To(Succeed())
				g.Expect(set.Status.ObservedGeneration).To(Equal(set.Generation))
				g.Expect(set.Status.UpdatedClusters).To(HaveValue(BeEquivalentTo(1)))
				g.Expect(r.status(ctx, "base", addonsv1.ReadyCondition)()).To(Equal("True ModulesReady"))
				g.Expect(r.status(ctx, "base", addonsv1.RollingOutCondition)()).To(Equal("False NotRollingOut"))
			}).Should(Succeed())
		}
		md := r.workers(ctx, "a", "infra", 3)
		Eventually(r.has(ctx, "a")).Should(ConsistOf("thanos"))
		Eventually(r.status(ctx, "base", addonsv1.ReadyCondition)).Should(HavePrefix("False ModulesNotReady"))
		change(ctx, md, func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = ptr.To[int32](1) })
		Eventually(r.status(ctx, "base", addonsv1.ReadyCondition), "30s").Should(Equal("True ModulesReady"))
	})

	It("knows the addresses of nodes by their roles", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		r.workers(ctx, "a", "infra", 2)
		r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules = []addonsv1.Module{{Name: "dns", Kustomize: &addonsv1.Kustomize{Path: "dns", Substitute: []addonsv1.Variable{
				{Name: "infra", Value: ptr.To(`{{ join " " .facts.nodes.addresses.infra }}`)},
				{Name: "address", Value: ptr.To(`{{ .facts.dns.mode }} {{ .facts.dns.address }}`)},
			}}}}
		})
		substituted := func(name string) func() string {
			return func() string {
				p := r.objects(ctx, "a")["dns"]
				if p == nil {
					return "nothing"
				}
				return p.Object.(*kustomizev1.Kustomization).Spec.PostBuild.Substitute[name]
			}
		}
		Eventually(substituted("address")).Should(Equal("None 10.111.255.254"))
		first := r.machine(ctx, "a", "infra", "one", "192.0.2.21", "fe80::1", "192.0.2.99")
		r.machine(ctx, "a", "infra", "two", "192.0.2.20")
		r.machine(ctx, "a", "infra", "unready")
		Eventually(substituted("infra")).Should(Equal("192.0.2.20 192.0.2.21"))
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Eventually(substituted("infra")).Should(Equal("192.0.2.20"))
	})

	It("reports its errors", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) { s.Modules[0].DependsOn = []string{"dns"} })
		Eventually(r.status(ctx, "base", addonsv1.ValidCondition)).Should(Equal("False Invalid Dependency cycle of modules: cni → dns → cni"))
		Eventually(r.condition(ctx, "a", "base")).Should(HavePrefix("False Invalid Dependency cycle of modules"))
		change(ctx, set, func(s *addonsv1.NovaModuleSet) {
			s.Spec.Modules[0].DependsOn = nil
			s.Spec.Modules[0].Chart.ValuesTemplate = "a: {{ .facts.nothing }}"
		})
		Eventually(r.condition(ctx, "a", "base")).Should(And(HavePrefix("False Invalid Module \"cni\": valuesTemplate"), ContainSubstring("nothing")))
	})

	It("installs nothing while one of its modules does not support the Kubernetes version", func(ctx SpecContext) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", nil)
		change(ctx, cluster, func(c *clusterv1.Cluster) {
			c.Spec.Topology = clusterv1.Topology{Version: "v1.36.3", ClassRef: clusterv1.ClusterClassRef{Name: "class"}}
		})
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) { s.Modules[1].Kubernetes = "<1.36" })
		Eventually(r.condition(ctx, "a", "base")).Should(Equal(
			"False Invalid Module dns: It supports Kubernetes <1.36, and the Cluster has v1.36.3. Nothing is installed before all modules support it"))
		Consistently(r.has(ctx, "a")).Should(BeEmpty())

		By("installing them when all do")
		change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Spec.Modules[1].Kubernetes = "<1.37" })
		r.allReady(ctx, "a", "cni", "dns")
		Eventually(r.condition(ctx, "a", "base")).Should(Equal("True ModulesReady"))

		By("keeping the modules when one does not any more")
		change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Spec.Modules[1].Kubernetes = "<1.36" })
		Eventually(r.condition(ctx, "a", "base")).Should(ContainSubstring("dns: It supports Kubernetes <1.36, and the Cluster has v1.36.3"))
		Consistently(r.has(ctx, "a")).Should(ConsistOf("cni", "dns"))
	})

	It("does not change an object of another owner", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "prod", map[string]string{"stage": "prod"})
		r.cluster(ctx, "prod-eu", map[string]string{"stage": "prod-eu"})
		only := func(stage string) func(*addonsv1.NovaModuleSetSpec) {
			return func(s *addonsv1.NovaModuleSetSpec) {
				s.ClusterSelector.MatchLabels = map[string]string{"stage": stage}
				s.Modules[1].Chart, s.Modules[1].Kustomize = &addonsv1.Chart{Name: "charts/dns"}, nil
			}
		}
		first := r.set(ctx, "eu-base", only("prod"))
		Eventually(r.has(ctx, "prod")).Should(ConsistOf("cni", "dns"))
		Eventually(r.condition(ctx, "prod", "eu-base")).Should(HavePrefix("False ModulesNotReady"))
		hr := r.objects(ctx, "prod")["cni"].Object
		r.set(ctx, "base", only("prod-eu"))
		Eventually(r.condition(ctx, "prod-eu", "base")).Should(Equal(fmt.Sprintf(
			"False NameConflict Module cni cannot be written: the name prod-eu-base-cni is already used by module cni of the set %s on Cluster prod; "+
				"2 of 2 modules are not ready: cni: Its name is already used; dns: Waiting for cni", r.key("eu-base"))))
		Consistently(func(g Gomega) {
			// The same owner may write the object again without a change: it does so while the cache
			// does not show the object yet.
			now := r.objects(ctx, "prod")["cni"].Object
			g.Expect(now.GetUID()).To(Equal(hr.GetUID()))
			g.Expect(now.GetGeneration()).To(Equal(hr.GetGeneration()))
			g.Expect(now.GetLabels()).To(Equal(hr.GetLabels()))
			g.Expect(r.has(ctx, "prod-eu")()).To(BeEmpty())
		}).Should(Succeed())
		Eventually(func() []string {
			list := &eventsv1.EventList{}
			Expect(testEnv.Client.List(ctx, list, client.InNamespace(r.namespace))).To(Succeed())
			var out []string
			for i := range list.Items {
				out = append(out, list.Items[i].Type+" "+list.Items[i].Regarding.Name+" "+list.Items[i].Reason)
			}
			return out
		}).Should(ContainElement("Warning prod-eu NameConflict"))

		By("taking the name when it is free")
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Eventually(r.has(ctx, "prod-eu"), "40s").Should(ConsistOf("cni", "dns"))
		Expect(r.objects(ctx, "prod-eu")["cni"].Object.(*helmv2.HelmRelease).Spec.KubeConfig.SecretRef.Name).To(Equal("prod-eu-kubeconfig"))
	})

	It("reserves a name once for two sets at the same time, and not if another owner has it", func(ctx SpecContext) {
		r := newRig(ctx)
		conflicting := &kustomizev1.Kustomization{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "a-own-dns"},
			Spec:       kustomizev1.KustomizationSpec{SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "own"}},
		}
		Expect(testEnv.Client.Create(ctx, conflicting)).To(Succeed())
		module := func(name string) func(*addonsv1.NovaModuleSetSpec) {
			return func(s *addonsv1.NovaModuleSetSpec) {
				s.Modules = []addonsv1.Module{{Name: name, Kustomize: &addonsv1.Kustomize{Path: name}}}
			}
		}
		fakeClusters.setUnreachable(r.key("a"), true)
		r.cluster(ctx, "a", nil)
		for set, m := range map[string]string{"nova": "extra-x", "nova-extra": "x", "own": "dns"} {
			r.set(ctx, set, module(m))
			Eventually(r.condition(ctx, "a", set)).Should(HavePrefix("False ClusterUnreachable"))
		}
		fakeClusters.setUnreachable(r.key("a"), false)
		Eventually(r.condition(ctx, "a", "own")).Should(HavePrefix(
			"False NameConflict Module dns cannot be written: the name a-own-dns is already used by an object that no set has written"))
		Eventually(func() []string {
			return []string{r.condition(ctx, "a", "nova")(), r.condition(ctx, "a", "nova-extra")()}
		}).Should(
			ConsistOf(HavePrefix("False ModulesNotReady"), HavePrefix("False NameConflict")))
		existing := &kustomizev1.Kustomization{}
		Expect(testEnv.Client.Get(ctx, r.key("a-nova-extra-x"), existing)).To(Succeed())
		Expect(existing.Generation).To(BeEquivalentTo(1), "it was written once")
		Expect(existing.ManagedFields).To(HaveLen(1))
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(conflicting), conflicting)).To(Succeed())
		Expect(conflicting.Labels).To(BeEmpty())
	})

	It("does not select Clusters of namespaces that do not allow it", func(ctx SpecContext) {
		r, other := newRig(ctx), newRig(ctx)
		other.cluster(ctx, "a", nil)
		r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) { s.Namespaces.List = []string{other.namespace} })
		Eventually(r.status(ctx, "base", addonsv1.ReadyCondition)).Should(And(
			HavePrefix("False NoClusters No Cluster is selected; 1 Clusters are not selected"), ContainSubstring(addonsv1.AllowFromAnnotation)))
		Expect(other.has(ctx, "a")()).To(BeEmpty())
		change(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.namespace}}, func(ns *corev1.Namespace) {
			ns.Annotations = map[string]string{addonsv1.AllowFromAnnotation: "x, " + r.namespace}
		})
		Eventually(other.has(ctx, "a")).Should(ConsistOf("cni"))
		Eventually(other.condition(ctx, "a", r.namespace+".base")).Should(HavePrefix("False ModulesNotReady"))
	})

	It("changes nothing while the set is suspended or the Cluster paused", func(ctx SpecContext) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", nil)
		set := r.set(ctx, "base", nil)
		r.allReady(ctx, "a", "cni", "dns")
		Eventually(r.condition(ctx, "a", "base")).Should(Equal("True ModulesReady"))
		change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Spec.Suspend, s.Spec.Modules = ptr.To(true), s.Spec.Modules[:1] })
		Eventually(r.condition(ctx, "a", "base")).Should(Equal("False Suspended The set is suspended"))
		Consistently(r.has(ctx, "a")).Should(ConsistOf("cni", "dns"))
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Spec.Suspend = nil })
		Consistently(r.has(ctx, "a")).Should(ConsistOf("cni", "dns"))
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni"))
	})
})

var _ = Describe("A rollout", func() {
	It("updates one wave after another and stops on failures", func(ctx SpecContext) {
		r := newRig(ctx)
		wave := func(n string) map[string]string { return map[string]string{addonsv1.WaveLabel: n} }
		r.cluster(ctx, "a", wave("1"))
		r.cluster(ctx, "b", wave("2"))
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules = s.Modules[:1]
			s.Rollout = addonsv1.Rollout{MaxConcurrent: ptr.To(intstr.FromInt32(1)), TimeoutSeconds: 2}
		})
		r.allReady(ctx, "a", "cni")
		r.allReady(ctx, "b", "cni")
		Eventually(r.status(ctx, "base", addonsv1.ReadyCondition)).Should(HavePrefix("True"))
		tag := func(cluster string) func() string { return r.tag(ctx, cluster) }

		By("changing the first wave only, which fails")
		change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Spec.Release.Tag = "v2" })
		Eventually(tag("a")).Should(Equal("v2"))
		Eventually(r.status(ctx, "base", addonsv1.RollingOutCondition)).Should(HavePrefix("True FailureBudgetExceeded 1 of 2 Clusters are at the current revision"))
		Expect(tag("b")()).To(Equal("v1"))

		By("continuing after the fix")
		r.allReady(ctx, "a", "cni")
		Eventually(tag("b")).Should(Equal("v2"))
		r.allReady(ctx, "b", "cni")
		Eventually(r.status(ctx, "base", addonsv1.RollingOutCondition)).Should(Equal("False NotRollingOut"))
		Eventually(r.status(ctx, "base", addonsv1.ReadyCondition)).Should(HavePrefix("True"))

		By("keeping only the revision that is used")
		Eventually(func() int {
			list := &appsv1.ControllerRevisionList{}
			Expect(testEnv.Client.List(ctx, list, client.InNamespace(r.namespace))).To(Succeed())
			return len(list.Items)
		}).Should(Equal(1))

		By("keeping waiting Clusters unchanged")
		change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Spec.Rollout.Suspend, s.Spec.Release.Tag = ptr.To(true), "v3" })
		Eventually(r.status(ctx, "base", addonsv1.RollingOutCondition)).Should(Equal("True RolloutSuspended 0 of 2 Clusters are at the current revision, wave 1 is in progress; suspended"))
		Consistently(tag("a")).Should(Equal("v2"))
		Expect(r.condition(ctx, "a", "base")()).To(HavePrefix("True"))
	})

	It("counts a Cluster as failed for which the new revision cannot be rendered", func(ctx SpecContext) {
		r := newRig(ctx)
		a := r.cluster(ctx, "a", nil)
		r.cluster(ctx, "b", map[string]string{"size": "large"})
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules = s.Modules[:1]
			s.Rollout = addonsv1.Rollout{MaxConcurrent: ptr.To(intstr.FromInt32(1))}
		})
		for _, cluster := range []string{"a", "b"} {
			r.allReady(ctx, cluster, "cni")
			Eventually(r.condition(ctx, cluster, "base")).Should(Equal("True ModulesReady"))
		}
		change(ctx, set, func(s *addonsv1.NovaModuleSet) {
			s.Spec.Release.Tag, s.Spec.Modules[0].When = "v2", "facts.cluster.labels['size'] == 'large'"
		})
		Eventually(r.condition(ctx, "a", "base")).Should(HavePrefix("False Invalid Module \"cni\": when"))
		Eventually(r.status(ctx, "base", addonsv1.RollingOutCondition)).Should(Equal(
			"True FailureBudgetExceeded 0 of 2 Clusters are at the current revision; stopped: 1 Clusters failed, and 0 may: " + r.key("a").String()))
		Expect(r.tag(ctx, "b")()).To(Equal("v1"))

		By("continuing within the budget")
		change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Spec.Rollout.FailureBudget = ptr.To(intstr.FromInt32(1)) })
		Eventually(r.tag(ctx, "b")).Should(Equal("v2"))
		r.allReady(ctx, "b", "cni")
		Eventually(r.status(ctx, "base", addonsv1.RollingOutCondition)).Should(Equal("True RollingOut 1 of 2 Clusters are at the current revision"))
		Expect(r.tag(ctx, "a")()).To(Equal("v1"))

		By("updating it after it can be rendered")
		change(ctx, a, func(c *clusterv1.Cluster) { c.Labels = map[string]string{"size": "large"} })
		Eventually(r.tag(ctx, "a")).Should(Equal("v2"))
		r.allReady(ctx, "a", "cni")
		Eventually(r.status(ctx, "base", addonsv1.RollingOutCondition)).Should(Equal("False NotRollingOut"))
	})

	It("skips paused Clusters and updates them after they are resumed", func(ctx SpecContext) {
		r := newRig(ctx)
		wave := func(n string) map[string]string { return map[string]string{addonsv1.WaveLabel: n} }
		pause := func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) }
		a := r.cluster(ctx, "a", wave("1"))
		r.cluster(ctx, "b", wave("1"))
		r.cluster(ctx, "c", wave("2"))
		bare := r.cluster(ctx, "d", wave("1"))
		change(ctx, bare, pause)
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules = s.Modules[:1]
			s.Rollout = addonsv1.Rollout{MaxConcurrent: ptr.To(intstr.FromInt32(1))}
		})
		for _, cluster := range []string{"a", "b", "c"} {
			r.allReady(ctx, cluster, "cni")
			Eventually(r.condition(ctx, cluster, "base")).Should(Equal("True ModulesReady"))
		}
		Eventually(r.condition(ctx, "d", "base")).Should(HavePrefix("False ClusterPaused"))

		change(ctx, a, pause)
		change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Spec.Release.Tag = "v2" })
		for _, cluster := range []string{"b", "c"} {
			Eventually(r.tag(ctx, cluster)).Should(Equal("v2"))
			r.allReady(ctx, cluster, "cni")
		}
		Eventually(r.status(ctx, "base", addonsv1.RollingOutCondition)).Should(Equal(fmt.Sprintf(
			"True RollingOut 2 of 4 Clusters are at the current revision; paused Clusters are updated after they are resumed: %s, %s", r.key("a"), r.key("d"))))
		Expect(r.tag(ctx, "a")()).To(Equal("v1"))
		Expect(r.condition(ctx, "a", "base")()).To(HavePrefix("True"))
		Expect(r.has(ctx, "d")()).To(BeEmpty())

		for _, cluster := range []*clusterv1.Cluster{a, bare} {
			change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		}
		Eventually(r.has(ctx, "d")).Should(ConsistOf("cni"))
		r.allReady(ctx, "d", "cni")
		Eventually(r.tag(ctx, "a")).Should(Equal("v2"))
		r.allReady(ctx, "a", "cni")
		Eventually(r.status(ctx, "base", addonsv1.RollingOutCondition)).Should(Equal("False NotRollingOut"))
	})
})

var _ = Describe("Removal", func() {
	It("removes modules before their dependencies", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		set := r.set(ctx, "base", nil)
		r.allReady(ctx, "a", "cni", "dns")
		dns := r.objects(ctx, "a")["dns"].Object
		hold(ctx, dns)
		Expect(testEnv.Client.Delete(ctx, set)).To(Succeed())
		Eventually(func() bool { return r.objects(ctx, "a")["dns"].Object.GetDeletionTimestamp().IsZero() }).Should(BeFalse())
		Consistently(func() bool { return r.objects(ctx, "a")["cni"].Object.GetDeletionTimestamp().IsZero() }).Should(BeTrue())
		Eventually(r.status(ctx, "base", addonsv1.ReadyCondition)).Should(Equal("False Deleting Waiting for the modules of 1 Clusters to be removed"))
		release(ctx, dns)
		Eventually(r.has(ctx, "a")).Should(BeEmpty())
		Eventually(func() bool {
			return apierrors.IsNotFound(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(set), set))
		}, "30s").Should(BeTrue())
		Eventually(r.condition(ctx, "a", "base")).Should(BeEmpty())
		sources := &sourcev1.GitRepositoryList{}
		Expect(testEnv.Client.List(ctx, sources, client.InNamespace(r.namespace))).To(Succeed())
		Expect(sources.Items).To(BeEmpty())
	})

	It("releases a deleted Cluster without changes in the workload cluster", func(ctx SpecContext) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", nil)
		r.set(ctx, "base", nil)
		r.allReady(ctx, "a", "cni", "dns")
		fakeClusters.setUnreachable(r.key("a"), true)
		cni := r.objects(ctx, "a")["cni"].Object
		hold(ctx, cni)
		Expect(testEnv.Client.Delete(ctx, cluster)).To(Succeed())
		Eventually(func() bool {
			p := r.objects(ctx, "a")["cni"]
			return p.Suspended && !p.Object.GetDeletionTimestamp().IsZero()
		}).Should(BeTrue())
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni"))
		release(ctx, cni)
		Eventually(r.has(ctx, "a")).Should(BeEmpty())
	})

	It("has a timeout if neither the workload cluster nor Flux responds", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) { s.Removal.TimeoutSeconds = 1 })
		r.allReady(ctx, "a", "cni", "dns")
		fakeClusters.setUnreachable(r.key("a"), true)
		for _, p := range r.objects(ctx, "a") {
			hold(ctx, p.Object)
		}
		Expect(testEnv.Client.Delete(ctx, set)).To(Succeed())
		Eventually(r.has(ctx, "a"), "40s").Should(BeEmpty())
	})

	It("keeps retained modules of a Cluster that is not selected anymore", func(ctx SpecContext) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", map[string]string{"modules": "yes"})
		r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.ClusterSelector.MatchLabels = map[string]string{"modules": "yes"}
			s.Modules[0].OnRemoval = addonsv1.RemovalKeep
		})
		r.allReady(ctx, "a", "cni", "dns")
		cni := r.objects(ctx, "a")["cni"].Object
		hold(ctx, cni)
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Labels = nil })
		Eventually(func() bool { p := r.objects(ctx, "a")["cni"]; return p.Suspended }, 30*time.Second).Should(BeTrue())
		release(ctx, cni)
		Eventually(r.has(ctx, "a"), "30s").Should(BeEmpty())
		Eventually(r.condition(ctx, "a", "base")).Should(BeEmpty())
	})

	It("forgets a moved set without changes in the workload cluster", func(ctx SpecContext) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", nil)
		set := r.set(ctx, "base", nil)
		r.allReady(ctx, "a", "cni", "dns")
		cni := r.objects(ctx, "a")["cni"].Object
		hold(ctx, cni)
		By("changing the source like clusterctl move")
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Finalizers = nil })
		Expect(testEnv.Client.Delete(ctx, set)).To(Succeed())
		Eventually(func() bool {
			p := r.objects(ctx, "a")["cni"]
			return p.Suspended && !p.Object.GetDeletionTimestamp().IsZero()
		}, "30s").Should(BeTrue())
		release(ctx, cni)
		Eventually(r.has(ctx, "a")).Should(BeEmpty())
	})
})

var _ = Describe("A new Kubernetes version", func() {
	It("is blocked until the modules support it", func(ctx SpecContext) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", nil)
		change(ctx, cluster, func(c *clusterv1.Cluster) {
			c.Spec.Topology = clusterv1.Topology{Version: "v1.36.3", ClassRef: clusterv1.ClusterClassRef{Name: "class"}}
		})
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.HoldUpgrades = ptr.To(true)
			s.Modules = []addonsv1.Module{{Name: "cni", Kubernetes: "<1.37", Kustomize: &addonsv1.Kustomize{}}}
		})
		annotation := func() string {
			Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
			return cluster.Annotations[holdAnnotation("base")]
		}
		Eventually(annotation).Should(HavePrefix("Set by the NovaModuleSet"))
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni"))
		change(ctx, set, func(s *addonsv1.NovaModuleSet) { s.Spec.HoldUpgrades = nil })
		Eventually(annotation).Should(BeEmpty())
	})

	It("is not blocked by a set that does not exist", func(ctx SpecContext) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", nil)
		holds := func() map[string]string {
			Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
			out := maps.Clone(cluster.Annotations)
			maps.DeleteFunc(out, func(name, _ string) bool { return !strings.HasPrefix(name, holdAnnotation("")) })
			return out
		}

		By("creating the Cluster without the set, as a move of its namespace does")
		change(ctx, cluster, func(c *clusterv1.Cluster) {
			c.Spec.Paused = ptr.To(true)
			c.Spec.Topology = clusterv1.Topology{Version: "v1.36.3", ClassRef: clusterv1.ClusterClassRef{Name: "class"}}
		})
		conditions.Set(cluster, metav1.Condition{Type: addonsv1.ClusterCondition("team.base"), Status: metav1.ConditionTrue, Reason: addonsv1.ReadyReason})
		Expect(testEnv.Client.Status().Update(ctx, cluster)).To(Succeed())
		change(ctx, cluster, func(c *clusterv1.Cluster) {
			c.Annotations = map[string]string{holdAnnotation("team.base"): holdInAdvance, holdAnnotation("own"): "Ask first"}
		})
		Consistently(holds).Should(HaveLen(2), "a paused Cluster is not changed: its sets may be moved later")
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		Eventually(holds).Should(Equal(map[string]string{holdAnnotation("own"): "Ask first"}))
		Eventually(r.condition(ctx, "a", "team.base")).Should(BeEmpty())

		By("deleting a set that wrote nothing")
		set := r.set(ctx, "base", func(s *addonsv1.NovaModuleSetSpec) {
			s.HoldUpgrades = ptr.To(true)
			s.Modules = []addonsv1.Module{{Name: "cni", When: "false", Kustomize: &addonsv1.Kustomize{}}}
		})
		Eventually(holds).Should(HaveKeyWithValue(holdAnnotation("base"), holdInAdvance))
		Eventually(r.condition(ctx, "a", "base")).Should(HavePrefix("True"))
		Consistently(holds, "500ms").Should(HaveKey(holdAnnotation("base")))
		By("removing the finalizer before the Cluster is reconciled")
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		Expect(testEnv.Client.Delete(ctx, set)).To(Succeed())
		Eventually(r.status(ctx, "base", addonsv1.ReadyCondition)).Should(ContainSubstring("not found"))
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		Eventually(holds).Should(Equal(map[string]string{holdAnnotation("own"): "Ask first"}))
		Eventually(r.condition(ctx, "a", "base")).Should(BeEmpty())
	})
})
