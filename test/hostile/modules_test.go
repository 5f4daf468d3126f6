package hostile

import (
	"context"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// administrator is a manifest that makes a tenant user cluster-admin.
const administrator = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: red-administrator
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: red-user}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
`

// moduleSet is a set with one Kustomize module, with changes to it.
func moduleSet(namespace, name string, module map[string]any) *unstructured.Unstructured {
	spec := map[string]any{"name": "evil", "kustomize": map[string]any{"path": "evil"}}
	maps.Copy(spec, module)
	maps.DeleteFunc(spec, func(_ string, value any) bool { return value == nil })
	return object(addonsV, "NovaModuleSet", namespace, name, map[string]any{
		"clusterSelector": map[string]any{},
		"sources":         []any{map[string]any{"name": "release", "git": map[string]any{"url": b.GitURL("evil"), "intervalSeconds": int64(10)}}},
		"release":         map[string]any{"tag": "v1"},
		"modules":         []any{spec},
	})
}

var _ = Describe("A module of a tenant user", Ordered, ContinueOnFailure, func() {
	const namespace = "red-modules"
	var user client.Client

	BeforeAll(func(ctx context.Context) {
		user = tenantUser(ctx, namespace)
		withdraw(namespace)
		bareCluster(ctx, user, namespace, "red", "192.0.2.1:6443")
	})

	It("is not given to the clusters of another namespace", func(ctx context.Context) {
		set := moduleSet(namespace, "others", nil)
		Expect(unstructured.SetNestedSlice(set.Object, []any{blue.Namespace}, "spec", "namespaces", "list")).To(Succeed())
		Expect(user.Create(ctx, set)).To(Succeed())
		Eventually(func() (any, error) {
			err := b.Client.Get(ctx, client.ObjectKeyFromObject(set), set)
			seen, _, _ := unstructured.NestedInt64(set.Object, "status", "observedGeneration")
			return seen, err
		}).Should(Equal(set.GetGeneration()))
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("kustomize.toolkit.fluxcd.io/v1")
		list.SetKind("KustomizationList")
		Expect(b.Client.List(ctx, list, client.InNamespace(blue.Namespace))).To(Succeed())
		Expect(list.Items).To(BeEmpty())
	})

	// Values of these fields are rendered into YAML that Flux applies.
	for what, text := range map[string]string{
		"a line break": "evil.example/x\nrbac: {clusterScoped: true}",
		"a quote":      `evil.example/x", rbac: {clusterScoped: true}, y: "`,
		"YAML":         "{evil: [1, 2]}",
		"a comment":    "evil.example/x #",
	} {
		for _, kind := range kinds() {
			It("is not changed by "+what+" in the server of a "+kind+"Cluster [F4]", func(ctx context.Context) {
				rejected(user.Create(ctx, infraCluster(kind, namespace, "injected", map[string]any{
					"server": text, "identityRef": map[string]any{"kind": "Secret", "name": "own"},
				})))
			})
		}
	}
})
