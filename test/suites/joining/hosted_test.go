package joining

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// hostedKind is a control plane that keeps the contract and no more, as those
// do that run elsewhere: it has an endpoint, and its kubeconfig is published.
const hostedKind = "HostedControlPlane"

func hostedDefinition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: "hostedcontrolplanes.controlplane.cluster.x-k8s.io", Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "controlplane.cluster.x-k8s.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: hostedKind, ListKind: hostedKind + "List", Plural: "hostedcontrolplanes", Singular: "hostedcontrolplane"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
			}},
		},
	}
}

// joinHosted makes a cluster whose control plane is that of blue, known only by
// its endpoint and kubeconfig, and returns the credential of its worker once that
// has joined.
func joinHosted(ctx context.Context, c bed.Cluster) *rest.Config {
	GinkgoHelper()
	Expect(b.Client.Create(ctx, hostedDefinition())).To(Succeed())
	objects, err := b.Generate(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	platform, _, err := unstructured.NestedMap(find(objects, "NovaControlPlane").Object, "spec", "platform")
	Expect(err).NotTo(HaveOccurred())
	objects = without(objects, "NovaControlPlane")
	cluster := find(objects, "Cluster")
	Expect(unstructured.SetNestedMap(cluster.Object, map[string]any{
		"apiGroup": "controlplane.cluster.x-k8s.io", "kind": hostedKind, "name": c.Name,
	}, "spec", "controlPlaneRef")).To(Succeed())
	Expect(unstructured.SetNestedMap(find(objects, "NovaConfigTemplate").Object, platform, "spec", "template", "spec", "platform")).To(Succeed())
	Expect(b.Credentials(ctx, c)).To(Succeed())

	kubeconfig, err := b.TenantKubeconfig(ctx, blue.Key())
	Expect(err).NotTo(HaveOccurred())
	published := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: c.Name}},
		Type:       clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig},
	}
	Expect(b.Client.Create(ctx, published)).To(Succeed())
	hosted := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "controlplane.cluster.x-k8s.io/v1", "kind": hostedKind}}
	hosted.SetNamespace(c.Namespace)
	hosted.SetName(c.Name)
	hosted.SetLabels(map[string]string{clusterv1.ClusterNameLabel: c.Name})
	Eventually(func() error { return b.Client.Create(ctx, hosted.DeepCopy()) }).WithTimeout(time.Minute).Should(Succeed())
	Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
	Expect(b.Client.Status().Patch(ctx, hosted, client.RawPatch(client.Merge.Type(), []byte(
		`{"status":{"initialization":{"controlPlaneInitialized":true},"version":"`+bed.KubernetesVersion+`","versions":[{"version":"`+bed.KubernetesVersion+`","replicas":1}]}}`)))).To(Succeed())
	deployment := find(objects, "MachineDeployment").GetName()
	config := discovery(ctx, c.Namespace, deployment)
	worker(ctx, c.Namespace, deployment)
	return config
}
