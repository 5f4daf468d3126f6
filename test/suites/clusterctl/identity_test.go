package clusterctl

import (
	"context"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// identity is an account that clusters of several namespaces share, and the
// Secret it names.
func identity(c bed.Cluster) (*unstructured.Unstructured, *corev1.Secret) {
	h, err := b.Hypervisor(c.Hypervisor)
	Expect(err).NotTo(HaveOccurred())
	data, err := h.Credentials()
	Expect(err).NotTo(HaveOccurred())
	shared := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"server": "hypervisor.example", "credentialsSecretRef": map[string]any{"name": "shared"},
	}}}
	shared.SetAPIVersion(clusterv1.GroupVersionInfrastructure.String())
	shared.SetKind(h.Facts().Kinds + "Identity")
	shared.SetName("shared")
	secret := &corev1.Secret{StringData: data}
	secret.Name, secret.Namespace = "shared", strings.ToLower(h.Facts().Provider)+"-system"
	return shared, secret
}

// makesIdentity creates an identity and its Secret. The manager makes the
// identity the owner of the Secret, so that clusterctl copies both.
func makesIdentity(ctx context.Context, c bed.Cluster) {
	shared, secret := identity(c)
	Expect(one.Client.Create(ctx, shared)).To(Succeed())
	Expect(one.Client.Create(ctx, secret)).To(Succeed())
}

// sharesIdentity expects the account in both management clusters: clusters that
// stay behind still need it.
func sharesIdentity(ctx context.Context, c bed.Cluster) {
	for _, cluster := range []*bed.Empty{one, two} {
		shared, secret := identity(c)
		Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(shared), shared)).To(Succeed())
		Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		Expect(secret.OwnerReferences).To(ConsistOf(HaveField("UID", shared.GetUID())))
	}
}
