package controlplane

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// expectVersions requires that kubeadm's configuration in the workload cluster, the API servers,
// kube-proxy and CoreDNS have the expected version.
func expectVersions(ctx context.Context, g Gomega, c *bed.Cluster) {
	GinkgoHelper()
	tenant, err := b.TenantClient(ctx, c.Key())
	g.Expect(err).NotTo(HaveOccurred())
	system := func(name string) client.ObjectKey {
		return client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}
	}
	config := &corev1.ConfigMap{}
	g.Expect(tenant.Get(ctx, system("kubeadm-config"), config)).To(Succeed())
	g.Expect(config.Data["ClusterConfiguration"]).To(ContainSubstring("kubernetesVersion: " + c.Version))
	servers := &corev1.PodList{}
	g.Expect(tenant.List(ctx, servers, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "kube-apiserver"})).To(Succeed())
	g.Expect(servers.Items).To(HaveLen(c.ControlPlanes))
	for _, pod := range servers.Items {
		g.Expect(pod.Spec.Containers[0].Image).To(HaveSuffix(":"+c.Version), pod.Name)
	}
	proxy := &appsv1.DaemonSet{}
	g.Expect(tenant.Get(ctx, system("kube-proxy"), proxy)).To(Succeed())
	g.Expect(proxy.Spec.Template.Spec.Containers[0].Image).To(HaveSuffix(":" + c.Version))
	dns := &appsv1.Deployment{}
	g.Expect(tenant.Get(ctx, system("coredns"), dns)).To(Succeed())
	image := dns.Spec.Template.Spec.Containers[0].Image
	g.Expect(image).To(HaveSuffix(":"+coreDNSOf(ctx, g, c)), image)
	g.Expect(dns.Status.AvailableReplicas).To(BeEquivalentTo(2))
}

// coreDNSOf is the version of CoreDNS that the kubeadm on a host names.
func coreDNSOf(ctx context.Context, g Gomega, c *bed.Cluster) string {
	out, err := b.Exec(ctx, names(ctx, c)[0], "kubeadm", "config", "images", "list", "--kubernetes-version", c.Version)
	g.Expect(err).NotTo(HaveOccurred())
	for image := range strings.FieldsSeq(out) {
		if name, version, ok := strings.Cut(image, ":"); ok && strings.HasSuffix(name, "/coredns") {
			return version
		}
	}
	return "none"
}
