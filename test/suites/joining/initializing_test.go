package joining

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// cutOff refuses connections to the machine's own API server from the moment at which kubeadm init
// restarts the kubelet. That is its last step before the addons, and the first request for these is
// not retried when the connection is closed.
const cutOff = `mkdir -p /etc/systemd/system/kubelet.service.d
cat >/etc/systemd/system/kubelet.service.d/90-cut-off.conf <<'END'
[Service]
ExecStopPost=/bin/sh -c 'test -e /run/cut-off || iptables --wait -I INPUT -p tcp --dport 6443 -j REJECT --reject-with tcp-reset; touch /run/cut-off'
END
systemctl daemon-reload`

// reconnect takes that back.
var reconnect = []string{"iptables", "--wait", "-D", "INPUT", "-p", "tcp", "--dport", "6443", "-j", "REJECT", "--reject-with", "tcp-reset"}

// firstMachine returns the name of a cluster's only control plane machine.
func firstMachine(ctx context.Context, c bed.Cluster) string {
	GinkgoHelper()
	var name string
	Eventually(func(g Gomega, ctx context.Context) {
		machines, _, err := b.Machines(ctx, c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(machines).To(HaveLen(1))
		name = machines[0].Name
	}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
	return name
}

var _ = describeInFull("A machine that initializes", func() {
	It("continues after kubeadm init lost its API server", func(ctx context.Context) {
		c := bed.Cluster{Name: "torn", Namespace: "torn", Hypervisor: bed.VSphere, ControlPlanes: 1, Endpoint: "10.77.0.64"}
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		config := find(objects, "NovaControlPlane").Object
		commands, _, err := unstructured.NestedStringSlice(config, "spec", "config", "preKubeadmCommands")
		Expect(err).NotTo(HaveOccurred())
		Expect(unstructured.SetNestedStringSlice(config, append(commands, cutOff), "spec", "config", "preKubeadmCommands")).To(Succeed())
		Expect(b.Credentials(ctx, c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(b.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}})).To(Succeed())
		})
		name := firstMachine(ctx, c)
		said := func(ctx context.Context) string {
			log, err := b.Exec(ctx, name, "cat", "/var/log/nova-bootstrap.log")
			if err != nil {
				return "" // the host does not run yet
			}
			return log
		}
		Eventually(said).WithContext(ctx).WithTimeout(bootTimeout).Should(And(
			ContainSubstring("error execution phase addon/"), ContainSubstring("kubeadm init failed")), func() string { return conditionsOf(ctx, c.Namespace) })

		By("being reached again")
		since := time.Now()
		_, err = b.Exec(ctx, name, reconnect...)
		Expect(err).NotTo(HaveOccurred())
		Eventually(said).WithContext(ctx).WithTimeout(joinTimeout).Should(HaveSuffix("Done"))
		AddReportEntry("kubeadm init through after", time.Since(since).Round(time.Second).String())
		log := said(ctx)
		for _, once := range []string{"[certs] Using certificateDir folder", "[etcd] Creating static Pod manifest"} {
			Expect(strings.Count(log, once)).To(Equal(1), once)
		}

		By("having all objects of kubeadm init, in the same machine")
		tenant, err := b.TenantClient(ctx, c.Key())
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(b.CheckCluster(ctx, c)).To(Succeed())
			dns, proxy := &appsv1.Deployment{}, &appsv1.DaemonSet{}
			g.Expect(tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "coredns"}, dns)).To(Succeed())
			g.Expect(tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}, proxy)).To(Succeed())
			g.Expect(dns.Status.AvailableReplicas).To(BeNumerically(">", 0))
			g.Expect(proxy.Status.NumberAvailable).To(BeEquivalentTo(1))
		}).WithContext(ctx).WithTimeout(joinTimeout).Should(Succeed())
		Eventually(bootstrapped(ctx, c, name)).WithTimeout(joinTimeout).Should(HavePrefix("NodeJoined"))
		Expect(firstMachine(ctx, c)).To(Equal(name))
	})
})
