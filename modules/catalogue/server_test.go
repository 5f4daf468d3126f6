package catalogue

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/modules"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// services is the service range of this API server.
const services = "10.0.0.0/24"

// A real API server accepts the sets and all objects of their trees, including
// names, addresses and expressions.
func TestAnAPIServerTakesEverything(t *testing.T) {
	g := NewWithT(t)
	var bases []string
	for _, name := range []string{"source", "kustomize", "helm"} {
		dir, err := tools.ToolDir(t.Context(), "components", "github.com/fluxcd/"+name+"-controller")
		g.Expect(err).NotTo(HaveOccurred())
		bases = append(bases, filepath.Join(dir, "config", "crd", "bases"))
	}
	e, err := env.Start(t.Context(), bases...)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	// Charts create them in a cluster.
	namespaces := map[string]bool{"team": true}
	for _, s := range named(t) {
		for _, set := range Names() {
			for _, o := range written(t, set, s) {
				if o.GetNamespace() != "" && o.GetNamespace() != metav1.NamespaceSystem {
					namespaces[o.GetNamespace()] = true
				}
			}
		}
	}
	for name := range namespaces {
		g.Expect(e.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	for _, name := range Names() {
		t.Run("Set "+name, func(t *testing.T) {
			g := NewWithT(t)
			set, err := Set(name)
			g.Expect(err).NotTo(HaveOccurred())
			c := content(t, name)
			set.Namespace, set.Spec.Sources, set.Spec.Release = "team", c.Sources, c.Release
			g.Expect(e.Client.Create(t.Context(), set, client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed())
		})
	}
	for name, s := range named(t) {
		t.Run("Site "+name, func(t *testing.T) {
			for _, set := range Names() {
				for _, o := range written(t, set, s) {
					take(t, e.Client, o)
				}
			}
		})
	}
	t.Run("Team", func(t *testing.T) { lockdown(t, e.Client) })
	t.Run("Pages", func(t *testing.T) { pageHosts(t, e.Client, e.Config) })
}

// written returns the Flux objects of a set, and the objects of its trees for
// which the server has schemas.
func written(t *testing.T, set string, s sites.Site) []*unstructured.Unstructured {
	t.Helper()
	facts := s.Facts()
	facts.Network.Services = []string{services}
	facts.DNS = modules.DNSOf(facts.Platform, facts.Network.Services)
	rendering, err := modules.Render(content(t, set), modules.Target{Namespace: "team", Name: "alpha", Set: set, Origin: "team", Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	all := rendering.Sources()
	var out []*unstructured.Unstructured
	for _, m := range rendering.Modules {
		if m.Off {
			continue
		}
		all = append(all, m.Object)
		for _, o := range delivered(t, m) {
			if !slices.Contains(ofOperators, o.GroupVersionKind().Group) {
				out = append(out, o)
			}
		}
	}
	for _, o := range all {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		delete(content, "status")
		out = append(out, &unstructured.Unstructured{Object: content})
	}
	return out
}

func take(t *testing.T, c client.Client, o *unstructured.Unstructured) {
	t.Helper()
	o = o.DeepCopy()
	err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.DryRunAll, client.ForceOwnership, client.FieldOwner("test"))
	if err != nil {
		t.Errorf("%s %s/%s: %v", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
}

// lockdown creates the namespace of a team and tries forbidden requests.
func lockdown(t *testing.T, c client.Client) {
	t.Helper()
	g := NewWithT(t)
	for _, o := range written(t, "team", sites.Site{}) {
		g.Expect(c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership, client.FieldOwner("test"))).To(Succeed())
	}
	may := func(namespace, group, resource string) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "somebody", Groups: []string{"team-a"}, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: "create", Group: group, Resource: resource,
			},
		}}
		g.Expect(c.Create(t.Context(), review)).To(Succeed())
		return review.Status.Allowed
	}
	for group, resource := range map[string]string{
		kustomizev1.GroupVersion.Group: "kustomizations", "image.toolkit.fluxcd.io": "imageupdateautomations", "notification.toolkit.fluxcd.io": "alerts",
	} {
		g.Eventually(func() bool { return may("team-a", group, resource) }, "10s").Should(BeTrue(), resource)
		g.Expect(may("team", group, resource)).To(BeFalse(), resource)
	}
	try := func(ctx context.Context, change func(*unstructured.Unstructured)) error {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"serviceAccountName": "team-a", "interval": "10m", "prune": true, "path": "./",
			"sourceRef": map[string]any{"kind": "GitRepository", "name": "code"},
		}}}
		o.SetGroupVersionKind(kustomizev1.GroupVersion.WithKind(kustomizev1.KustomizationKind))
		o.SetNamespace("team-a")
		o.SetName("app")
		change(o)
		return c.Create(ctx, o, client.DryRunAll)
	}
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			g.Expect(unstructured.SetNestedField(o.Object, value, path...)).To(Succeed())
		}
	}
	// A new policy is not enforced immediately.
	g.Eventually(func() error { return try(t.Context(), set("kustomize-controller", "spec", "serviceAccountName")) }, "30s").
		Should(MatchError(ContainSubstring("spec.serviceAccountName must be team-a")))
	g.Expect(try(t.Context(), set("other", "spec", "sourceRef", "namespace"))).To(MatchError(ContainSubstring("must stay in the namespace team-a")))
	g.Expect(try(t.Context(), set("other", "spec", "targetNamespace"))).To(MatchError(ContainSubstring("spec.targetNamespace must be team-a")))
	g.Expect(try(t.Context(), set("x", "spec", "kubeConfig", "secretRef", "name"))).To(MatchError(ContainSubstring("spec.kubeConfig is not for teams")))
	g.Expect(try(t.Context(), func(*unstructured.Unstructured) {})).To(Succeed())
	g.Expect(try(t.Context(), func(o *unstructured.Unstructured) {
		o.SetNamespace("team")
		set("kustomize-controller", "spec", "serviceAccountName")(o)
	})).To(Succeed(), "other namespaces are not its business")
	held := deleted(t, c, `{kind: Kustomization, apiVersion: kustomize.toolkit.fluxcd.io/v1, spec: {
		serviceAccountName: team-a, interval: 10m, prune: true, sourceRef: {kind: GitRepository, name: code}}}`, "held", "team-a")
	changed := held.DeepCopy()
	set("kustomize-controller", "spec", "serviceAccountName")(changed)
	g.Expect(c.Update(t.Context(), changed)).To(MatchError(ContainSubstring("spec.serviceAccountName must be team-a")))
	held.SetFinalizers(nil)
	g.Expect(c.Update(t.Context(), held)).To(Succeed(), "the finalizer is removed")
}
