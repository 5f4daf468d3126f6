package modules

import (
	"context"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// storage has a module in the management cluster and one in the workload
// cluster.
func storage(s *addonsv1.NovaModuleSetSpec) {
	s.Modules = []addonsv1.Module{
		{Name: "controller", Location: addonsv1.LocationManagement, Kustomize: &addonsv1.Kustomize{
			Path: "csi", Substitute: []addonsv1.Variable{{Name: "registry", Value: ptr.To("{{ .facts.images.registry }}")}},
		}},
		{Name: "node", Kustomize: &addonsv1.Kustomize{Path: "node"}},
	}
}

// platformSet creates a set of the administrator for the Clusters of the rig, whose namespace allows
// it.
func (r *fleetRig) platformSet(ctx context.Context) *addonsv1.NovaModuleSet {
	GinkgoHelper()
	change(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, func(n *corev1.Namespace) {
		n.Annotations = map[string]string{addonsv1.AllowFromAnnotation: platformNamespace}
	})
	return (&fleetRig{namespace: platformNamespace}).set(ctx, r.namespace, func(s *addonsv1.NovaModuleSetSpec) {
		storage(s)
		s.Namespaces.List = []string{r.namespace}
	})
}

// remain reports whether the object of a module exists and is not being deleted.
func (r *fleetRig) remain(ctx context.Context, cluster, module string) func() bool {
	return func() bool {
		p := r.objects(ctx, cluster)[module]
		return p != nil && p.Object.GetDeletionTimestamp().IsZero()
	}
}

// purge removes the finalizers of an object and deletes it, as clusterctl move does.
func purge(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Eventually(func() error {
		if err := testEnv.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return client.IgnoreNotFound(err)
		}
		o.SetFinalizers(nil)
		if err := testEnv.Client.Update(ctx, o); err != nil {
			return err
		}
		return client.IgnoreNotFound(testEnv.Client.Delete(ctx, o))
	}).Should(Succeed())
}

var _ = Describe("A module of the management cluster", func() {
	It("is refused from a namespace that the administrator did not name", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		r.set(ctx, "mine", storage)
		Eventually(r.condition(ctx, "a", "mine")).Should(Equal("False ManagementForbidden The location Management of controller is not allowed for sets of the namespace " +
			r.namespace + ": the administrator allows it for platform (--management-modules-from of nova-addon)"))
		Eventually(r.status(ctx, "mine", addonsv1.ValidCondition)).Should(ContainSubstring("False Invalid The location Management of controller is not allowed"))
		Consistently(r.has(ctx, "a")).Should(BeEmpty(), "nothing of the set is written")
		Eventually(func(g Gomega) {
			list := &eventsv1.EventList{}
			g.Expect(testEnv.Client.List(ctx, list, client.InNamespace(r.namespace))).To(Succeed())
			g.Expect(list.Items).To(ContainElement(HaveField("Reason", addonsv1.ManagementForbiddenReason)))
		}).Should(Succeed())
	})

	It("runs as its own service account, with images of the administrator", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		r.platformSet(ctx)
		Eventually(r.has(ctx, "a")).Should(ConsistOf("controller", "node"))
		k, ok := r.objects(ctx, "a")["controller"].Object.(*kustomizev1.Kustomization)
		Expect(ok).To(BeTrue())
		Expect(k.Spec.KubeConfig).To(BeNil())
		Expect(k.Spec.ServiceAccountName).To(Equal("nova-modules"))
		Expect(k.Spec.PostBuild.Substitute).To(HaveKeyWithValue("registry", "hub.example/platform"))
		Expect(k.Spec.PostBuild.Substitute).To(HaveKeyWithValue("imageRepository", "hub.example/platform"))
	})

	It("is removed with its Cluster after the Machines are deleted", func(ctx SpecContext) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", nil)
		machine := r.machine(ctx, "a", "worker", "w1")
		r.platformSet(ctx)
		Eventually(r.has(ctx, "a")).Should(ConsistOf("controller", "node"))
		object := r.objects(ctx, "a")["controller"].Object
		hold(ctx, object)
		change(ctx, cluster, func(c *clusterv1.Cluster) { controllerutil.AddFinalizer(c, "example.test/held") })
		Expect(testEnv.Client.Delete(ctx, cluster)).To(Succeed())

		By("releasing the module of the workload cluster, and serving the Machine")
		Eventually(r.has(ctx, "a")).Should(ConsistOf("controller"))
		Consistently(r.remain(ctx, "a", "controller")).Should(BeTrue())

		By("having Flux remove it afterwards")
		Expect(testEnv.Client.Delete(ctx, machine)).To(Succeed())
		Eventually(r.remain(ctx, "a", "controller")).Should(BeFalse())
		Expect(r.objects(ctx, "a")["controller"].Suspended).To(BeFalse(), "a suspended object would leave its pods")
		release(ctx, object)
		Eventually(r.has(ctx, "a")).Should(BeEmpty())
		purge(ctx, cluster)
	})

	It("is removed from the source after its Cluster is moved", func(ctx SpecContext) {
		r := newRig(ctx)
		cluster := r.cluster(ctx, "a", nil)
		set := r.platformSet(ctx)
		Eventually(r.has(ctx, "a")).Should(ConsistOf("controller", "node"))
		object := r.objects(ctx, "a")["controller"].Object
		hold(ctx, object)
		change(ctx, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		purge(ctx, set)
		purge(ctx, cluster)
		Eventually(r.remain(ctx, "a", "controller")).Should(BeFalse())
		Expect(r.objects(ctx, "a")["controller"].Suspended).To(BeFalse())
		release(ctx, object)
		Eventually(r.has(ctx, "a")).Should(BeEmpty())
	})

	DescribeTable("is refused", func(ctx SpecContext, message string, edit func(*addonsv1.NovaModuleSetSpec)) {
		r := &fleetRig{namespace: platformNamespace}
		s := &addonsv1.NovaModuleSet{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "refused"}, Spec: addonsv1.NovaModuleSetSpec{
			ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no": "cluster"}},
			Sources:         []addonsv1.Source{{Name: "release", Git: addonsv1.GitSource{URL: "https://code.example/release.git"}}},
			Release:         addonsv1.Release{Tag: "v1"},
		}}
		storage(&s.Spec)
		edit(&s.Spec)
		err := testEnv.Client.Create(ctx, s, client.DryRunAll)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("with another service account", "is nova-modules, or begins with nova-modules-", func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules[0].ServiceAccountName = "kustomize-controller"
		}),
		Entry("with variables of the workload cluster", "takes no substituteFrom", func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules[0].Kustomize.SubstituteFrom = []addonsv1.VariablesReference{{Kind: "Secret", Name: "x"}}
		}),
		Entry("with values of the workload cluster", "takes no valuesFrom", func(s *addonsv1.NovaModuleSetSpec) {
			s.Modules[0].Kustomize, s.Modules[0].Chart = nil, &addonsv1.Chart{Name: "x", ValuesFrom: []addonsv1.ValuesReference{{Kind: "Secret", Name: "x"}}}
		}),
		Entry("that would be kept", "removed with its Cluster", func(s *addonsv1.NovaModuleSetSpec) { s.Modules[0].OnRemoval = addonsv1.RemovalKeep }),
		Entry("from a source in the Cluster's namespace", "needs a source that the set writes itself", func(s *addonsv1.NovaModuleSetSpec) {
			s.Sources = []addonsv1.Source{{Name: "theirs", Ref: addonsv1.SourceReference{Kind: addonsv1.GitRepository, Name: "x"}}}
			s.Release = addonsv1.Release{}
		}),
		Entry("with an unknown operator", "the operator of an expression must be", func(s *addonsv1.NovaModuleSetSpec) {
			s.ClusterSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like", Values: []string{"b"}}}
		}),
		Entry("with an operator that needs values", "the operator of an expression must be", func(s *addonsv1.NovaModuleSetSpec) {
			s.Namespaces.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn}}}
		}),
	)
})

var _ = Describe("A set", func() {
	DescribeTable("never follows a branch or tag that is not set", func(ctx SpecContext, message string, source addonsv1.Source, release addonsv1.Release) {
		source.Name = "release"
		err := testEnv.Client.Create(ctx, &addonsv1.NovaModuleSet{ObjectMeta: metav1.ObjectMeta{Namespace: platformNamespace, Name: "floating"}, Spec: addonsv1.NovaModuleSetSpec{
			ClusterSelector: &metav1.LabelSelector{}, Sources: []addonsv1.Source{source}, Release: release,
		}}, client.DryRunAll)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("git without release", "release is required with git and oci sources", addonsv1.Source{Git: addonsv1.GitSource{URL: "https://code.example/x.git"}}, addonsv1.Release{}),
		Entry("oci without release", "release is required with git and oci sources", addonsv1.Source{OCI: addonsv1.OCISource{URL: "oci://hub.example/x"}}, addonsv1.Release{}),
		Entry("git with a digest", "release.digest is for oci sources", addonsv1.Source{Git: addonsv1.GitSource{URL: "https://code.example/x.git"}},
			addonsv1.Release{Digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}),
		Entry("oci with a floating tag", "the tag latest moves without a change of the set", addonsv1.Source{OCI: addonsv1.OCISource{URL: "oci://hub.example/x"}}, addonsv1.Release{Tag: "latest"}),
		Entry("git with a floating tag", "the tag latest moves without a change of the set", addonsv1.Source{Git: addonsv1.GitSource{URL: "https://code.example/x.git"}}, addonsv1.Release{Tag: "latest"}),
		Entry("oci with a branch", "are for git sources", addonsv1.Source{OCI: addonsv1.OCISource{URL: "oci://hub.example/x"}}, addonsv1.Release{Branch: "main"}),
		Entry("oci with a commit", "are for git sources", addonsv1.Source{OCI: addonsv1.OCISource{URL: "oci://hub.example/x"}}, addonsv1.Release{Commit: "0123456"}),
	)

	It("does not fight with another one over a Helm release", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		one := func(s *addonsv1.NovaModuleSetSpec) { s.Modules = s.Modules[:1] }
		first := r.set(ctx, "first", one)
		Eventually(r.has(ctx, "a")).Should(ConsistOf("cni"))
		r.set(ctx, "second", one)
		Eventually(r.condition(ctx, "a", "second")).Should(HavePrefix(
			"False NameConflict Module cni cannot be written: the Helm release default/cni is already used by module cni of the set " + r.namespace + "/first on Cluster a"))
		r.allReady(ctx, "a", "cni")
		Eventually(r.condition(ctx, "a", "first")).Should(Equal("True ModulesReady"))

		By("assigning it to the second after the first is deleted")
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Eventually(func() error { return testEnv.Client.Get(ctx, r.key("a-second-cni"), &helmv2.HelmRelease{}) }).Should(Succeed())
	})

	It("does not fight with another one over the objects of a path", func(ctx SpecContext) {
		r := newRig(ctx)
		r.cluster(ctx, "a", nil)
		one := func(path, team, tag string) func(*addonsv1.NovaModuleSetSpec) {
			return func(s *addonsv1.NovaModuleSetSpec) {
				s.Release.Tag = tag
				s.Modules = []addonsv1.Module{{Name: "web-" + team, Kustomize: &addonsv1.Kustomize{
					Path: path, Substitute: []addonsv1.Variable{{Name: "team", Value: ptr.To("{{ print `" + team + "` }}")}},
				}}}
			}
		}
		first := r.set(ctx, "first", one("web", "x", "v1"))
		Eventually(r.has(ctx, "a")).Should(ConsistOf("web-x"))
		r.set(ctx, "second", func(s *addonsv1.NovaModuleSetSpec) {
			one("./web/", "x", "v2")(s)
			s.Modules[0].Name = "web"
		})
		Eventually(r.condition(ctx, "a", "second")).Should(HavePrefix(
			"False NameConflict Module web cannot be written: the path ./web/ with the same source, namespace and variables is already used by module web-x of the set " + r.namespace + "/first on Cluster a"))
		r.set(ctx, "third", one("web", "y", "v1"))
		Eventually(r.has(ctx, "a")).Should(ConsistOf("web-x", "web-y"), "other variables are other objects")

		By("assigning it to the second after the first is deleted")
		Expect(testEnv.Client.Delete(ctx, first)).To(Succeed())
		Eventually(r.has(ctx, "a"), "30s").Should(ConsistOf("web", "web-y"))
	})

	It("does not read groups that it has no permission to list", func(ctx SpecContext) {
		r := newRig(ctx)
		c := &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "a"},
			Spec: clusterv1.ClusterSpec{
				ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443},
				ControlPlaneRef:      clusterv1.ContractVersionedObjectReference{APIGroup: "ipam.cluster.x-k8s.io", Kind: "IPAddress", Name: "a"},
			},
		}
		Expect(testEnv.Client.Create(ctx, c)).To(Succeed())
		c.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		Expect(testEnv.Client.Status().Update(ctx, c)).To(Succeed())
		r.set(ctx, "base", nil)
		Eventually(r.condition(ctx, "a", "base")).Should(HavePrefix(
			"False ModulesNotReady Reading control plane: the group ipam.cluster.x-k8s.io of IPAddress a is not one of "))
	})
})

// TestFetchable: a tenant's set may not use an address that only the management cluster can reach; the
// administrator's set may.
func TestFetchable(t *testing.T) {
	policy, err := endpoints.New(nil, nil, "10.96.0.1")
	if err != nil {
		t.Fatal(err)
	}
	endpoints.Set(policy)
	t.Cleanup(func() { endpoints.Set(endpoints.Policy{}) })
	git := func(url string) addonsv1.Source { return addonsv1.Source{Name: "x", Git: addonsv1.GitSource{URL: url}} }
	for name, tc := range map[string]struct {
		source    addonsv1.Source
		namespace string
		want      string
	}{
		"A registry":                             {addonsv1.Source{Name: "x", OCI: addonsv1.OCISource{URL: "oci://hub.example/x"}}, "team", ""},
		"A reference":                            {addonsv1.Source{Name: "x", Ref: addonsv1.SourceReference{Kind: addonsv1.GitRepository, Name: "x"}}, "team", ""},
		"Git over SSH":                           {git("ssh://git@code.example:2222/x.git"), "team", ""},
		"Metadata of a cloud":                    {git("http://169.254.169.254/latest"), "team", `source "x": the manager's flags deny connections to this address`},
		"Loopback as IPv6":                       {git("https://[::ffff:127.0.0.1]:8080/x"), "team", `source "x": the manager's flags deny connections to this address`},
		"Loopback by name":                       {git("ssh://git@LOCALHOST./x"), "team", `source "x": the manager's flags deny connections to this address`},
		"The management API":                     {addonsv1.Source{Name: "x", Helm: addonsv1.HelmSource{URL: "https://10.96.0.1"}}, "team", `source "x": the manager's flags deny connections to this address`},
		"A registry on loopback":                 {addonsv1.Source{Name: "x", OCI: addonsv1.OCISource{URL: "oci://127.0.0.1:5000/x"}}, "team", `source "x": the manager's flags deny connections to this address`},
		"Malformed":                              {git("https://us:er:pass word@code.example"), "team", `source "x": the url is malformed`},
		"Loopback in a set of the administrator": {git("http://127.0.0.1/x"), platformNamespace, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set := &addonsv1.NovaModuleSet{ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace, Name: "set"}}
			got := ""
			if err := fetchable(&modules.Content{Sources: []addonsv1.Source{tc.source}}, set, []string{platformNamespace}); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}
