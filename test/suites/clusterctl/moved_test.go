package clusterctl

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// namespaced are the kinds of objects that a cluster can have in its namespace:
// those of all definitions of Cluster API and its providers, Secrets and
// ConfigMaps.
func namespaced(ctx context.Context, in *bed.Empty) ([]schema.GroupVersionKind, error) {
	definitions := &unstructured.UnstructuredList{}
	definitions.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	if err := in.Client.List(ctx, definitions); err != nil {
		return nil, err
	}
	kinds := []schema.GroupVersionKind{{Version: "v1", Kind: "SecretList"}, {Version: "v1", Kind: "ConfigMapList"}}
	for i := range definitions.Items {
		spec := definitions.Items[i].Object["spec"].(map[string]any)
		group := spec["group"].(string)
		if spec["scope"] != "Namespaced" || !strings.HasSuffix("."+group, ".cluster.x-k8s.io") {
			continue
		}
		for _, version := range spec["versions"].([]any) {
			if version := version.(map[string]any); version["storage"].(bool) {
				kind := spec["names"].(map[string]any)["kind"].(string) + "List"
				kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: version["name"].(string), Kind: kind})
			}
		}
	}
	return kinds, nil
}

// belongings are all objects in a cluster's namespace, by kind and name. The
// certificates that every namespace gets are not the cluster's.
func belongings(ctx context.Context, in *bed.Empty, c bed.Cluster) (map[string]metav1.PartialObjectMetadata, error) {
	kinds, err := namespaced(ctx, in)
	if err != nil {
		return nil, err
	}
	all := map[string]metav1.PartialObjectMetadata{}
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := in.Client.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.Kind, err)
		}
		for _, object := range list.Items {
			if object.Name != "kube-root-ca.crt" {
				all[strings.TrimSuffix(kind.Kind, "List")+" "+object.Name] = object
			}
		}
	}
	return all, nil
}

// takesOver waits until the managers of a management cluster say that a cluster
// belongs to another one, and takes the cluster over by the command of the guide.
func takesOver(ctx context.Context, in *bed.Empty, c bed.Cluster) {
	GinkgoHelper()
	h, err := b.Hypervisor(c.Hypervisor)
	Expect(err).NotTo(HaveOccurred())
	made, err := creations(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	matches := func(kind string) func() (string, error) {
		return func() (string, error) {
			return command(ctx, "kubectl", nil, "--kubeconfig", in.Kubeconfig(), "get", kind, "-n", c.Namespace,
				"-o", `jsonpath={.items[*].status.conditions[?(@.type=="`+fence.ConditionType+`")].reason}`)
		}
	}
	for _, kind := range []string{strings.ToLower(h.Facts().Kinds + "Clusters"), "novacontrolplanes"} {
		Eventually(matches(kind)).WithContext(ctx).WithTimeout(changeTimeout).Should(Equal(fence.OtherReason), kind)
	}
	Expect(creations(ctx, c)).To(Equal(made), "it only reads until it takes over")
	uid, err := command(ctx, "kubectl", nil, "--kubeconfig", in.Kubeconfig(), "get", "namespace", metav1.NamespaceSystem, "-o", "jsonpath={.metadata.uid}")
	Expect(err).NotTo(HaveOccurred())
	_, err = command(ctx, "kubectl", nil, "--kubeconfig", in.Kubeconfig(), "annotate", "clusters", "--all", "-n", c.Namespace, "--overwrite",
		fence.TakeOverAnnotation+"="+uid)
	Expect(err).NotTo(HaveOccurred())
	for _, kind := range []string{strings.ToLower(h.Facts().Kinds + "Clusters"), "novacontrolplanes"} {
		Eventually(matches(kind)).WithContext(ctx).WithTimeout(changeTimeout).Should(Equal(fence.MatchesReason), kind)
	}
}

// arrives expects the objects of a cluster in the management cluster that it moved to, with owners
// that exist, and none of them in the former management cluster.
func arrives(ctx context.Context, c bed.Cluster, had map[string]metav1.PartialObjectMetadata) {
	GinkgoHelper()
	has, err := belongings(ctx, two, c)
	Expect(err).NotTo(HaveOccurred())
	for name, object := range had {
		Expect(has).To(HaveKey(name))
		for _, owner := range object.OwnerReferences {
			Expect(has[name].OwnerReferences).To(ContainElement(And(HaveField("Kind", owner.Kind), HaveField("Name", owner.Name))), name)
		}
	}
	for name, object := range has {
		for _, owner := range object.OwnerReferences {
			Expect(has).To(HaveKey(owner.Kind+" "+owner.Name), "the owner of %s", name)
			Expect(has[owner.Kind+" "+owner.Name].UID).To(Equal(owner.UID), "%s has an owner of the management cluster that it left", name)
		}
	}
	Eventually(belongings).WithContext(ctx).WithArguments(one, c).WithTimeout(changeTimeout).Should(BeEmpty(), "nothing is left behind")

	// The objects that create further machines.
	plane := &controlplanev1.NovaControlPlane{}
	Expect(two.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-control-plane"}, plane)).To(Succeed())
	template := plane.Spec.MachineTemplate.Spec.InfrastructureRef
	Expect(has).To(HaveKey(template.Kind+" "+template.Name), "the control plane's machine template")
	Expect(has[template.Kind+" "+template.Name].OwnerReferences).To(ContainElement(And(HaveField("Kind", "Cluster"), HaveField("Name", c.Name))))
	Expect(names(has, "NovaConfig")).To(HaveLen(c.ControlPlanes + c.Workers))
	Expect(names(has, "NovaConfigTemplate")).NotTo(BeEmpty())
}

// names are those of the objects of a kind.
func names(objects map[string]metav1.PartialObjectMetadata, kind string) []string {
	var found []string
	for name := range objects {
		if of, name, _ := strings.Cut(name, " "); of == kind {
			found = append(found, name)
		}
	}
	return found
}
