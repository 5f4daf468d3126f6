package bootstrap

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// internalIP is a node's address.
func internalIP(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

// servers are the API servers in the configuration of a worker's load balancer.
func servers(ctx context.Context, worker string) func() ([]string, error) {
	return func() ([]string, error) {
		out, err := b.Exec(ctx, worker, "sed", "-n", `s/^  server api-[0-9]* //p`, "/etc/nova/api-balancer/haproxy.cfg")
		return strings.Fields(out), err
	}
}

// through requests the API server in the way of the worker's kubelet.
func through(ctx context.Context, worker string) func() (string, error) {
	return func() (string, error) {
		return b.Exec(ctx, worker, "kubectl", "--kubeconfig", "/etc/kubernetes/kubelet.conf", "--request-timeout", "5s", "get", "--raw", "/readyz")
	}
}

// pastEndpoint is a client of one control plane machine's API server.
func pastEndpoint(ctx context.Context, c bed.Cluster, address string) client.Client {
	GinkgoHelper()
	config, err := b.TenantConfig(ctx, c.Key())
	Expect(err).NotTo(HaveOccurred())
	config.Host = "https://" + address + ":6443"
	tenant, err := client.New(config, client.Options{Scheme: env.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return tenant
}

// describeBalancer continues with a cluster whose workers have load balancers. At its end the
// cluster's endpoint is unreachable.
func describeBalancer(c bed.Cluster) {
	It("has the worker's kubelet and kube-proxy ask the balancer beside it", func(ctx context.Context) {
		masters, workers := awaitNodes(ctx, c, 1, 1)
		worker := workers[0].Name
		Expect(on(ctx, worker, "grep", "-A1", "server:", "/etc/kubernetes/kubelet.conf")).
			To(MatchRegexp(`^server: https://127\.0\.0\.1:6443\n +tls-server-name: kubernetes$`))
		Eventually(servers(ctx, worker)).WithTimeout(podTimeout).Should(ConsistOf(internalIP(&masters[0]) + ":6443"))
		Eventually(through(ctx, worker)).WithTimeout(podTimeout).Should(Equal("ok"))
		tenant, err := b.TenantClient(ctx, c.Key())
		Expect(err).NotTo(HaveOccurred())
		config := &corev1.ConfigMap{}
		Expect(tenant.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kube-proxy"}, config)).To(Succeed())
		Expect(config.Data["kubeconfig.conf"]).To(ContainSubstring("server: https://127.0.0.1:6443\n"))
		balancer := &corev1.Pod{}
		Expect(tenant.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "nova-api-balancer-" + worker}, balancer)).To(Succeed())
		Expect(balancer.Spec.Priority).To(HaveValue(BeEquivalentTo(2000001000)), "it is evicted last if memory is short")
	})

	if everything {
		It("follows the control plane without new user data", func(ctx context.Context) { replaceControlPlane(ctx, c) })
	}

	It("keeps the worker in the cluster with the endpoint dead", func(ctx context.Context) { loseEndpoint(ctx, c) })
}

// replaceControlPlane rolls the control plane out and waits until nothing of
// the old one is left, in the cluster and in the worker's balancer.
func replaceControlPlane(ctx context.Context, c bed.Cluster) {
	masters, workers := awaitNodes(ctx, c, 1, 1)
	old := masters[0].Name
	controlPlane := &controlplanev1.NovaControlPlane{}
	Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-control-plane"}, controlPlane)).To(Succeed())
	before := controlPlane.DeepCopy()
	controlPlane.Spec.Rollout.After = &metav1.Time{Time: time.Now().Add(-time.Second)}
	Expect(b.Client.Patch(ctx, controlPlane, client.MergeFrom(before))).To(Succeed())
	var fresh corev1.Node
	Eventually(func(g Gomega, ctx context.Context) {
		nodes, err := ready(ctx, c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(nodes).To(HaveLen(2))
		for _, node := range nodes {
			g.Expect(node.Name).NotTo(Equal(old))
			if node.Name != workers[0].Name {
				fresh = node
			}
		}
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
	Eventually(servers(ctx, workers[0].Name)).WithTimeout(podTimeout).Should(ConsistOf(internalIP(&fresh) + ":6443"))
}

// loseEndpoint removes the endpoint's address and performs actions on the worker that need an API
// server.
func loseEndpoint(ctx context.Context, c bed.Cluster) {
	masters, workers := awaitNodes(ctx, c, 1, 1)
	worker := workers[0].Name
	tenant := pastEndpoint(ctx, c, internalIP(&masters[0]))
	on(ctx, masters[0].Name, "rm", "/etc/kubernetes/manifests/kube-vip.yaml")
	Eventually(func(g Gomega) {
		// kube-vip takes its address along when it ends, or leaves it.
		_, _ = b.Exec(ctx, masters[0].Name, "ip", "address", "del", c.Endpoint+"/32", "dev", "eth0")
		_, err := b.Exec(ctx, worker, "curl", "-sk", "--noproxy", "*", "--max-time", "2", "https://"+c.Endpoint+":6443/readyz")
		g.Expect(err).To(HaveOccurred())
	}).WithTimeout(podTimeout).Should(Succeed())

	By("having its kubelet run a pod that was made since")
	p := pod(hub+"/nova-universe/probe:v1", worker)
	Expect(tenant.Create(ctx, p)).To(Succeed())
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(tenant.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning))
	}).WithContext(ctx).WithTimeout(podTimeout).Should(Succeed())

	By("having its kube-proxy serve a service that was made since")
	meta := metav1.ObjectMeta{Namespace: "default", Name: "late"}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	Expect(tenant.Create(ctx, service)).To(Succeed())
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: "late"}
	Expect(tenant.Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host.Gateway}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(proxyPort))}},
	})).To(Succeed())
	Eventually(func() (string, error) {
		return b.Exec(ctx, worker, "curl", "-s", "--noproxy", "*", "--max-time", "2", "-o", "/dev/null", "-w", "%{http_code}", "http://"+service.Spec.ClusterIP)
	}).WithTimeout(podTimeout).Should(Equal("407"), "the suite's proxy responds, and requires a login")
}
