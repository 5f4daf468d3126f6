package foreign

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/kubevirt"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// The provider takes minutes to build, so it is there only where all suites run.
var _ = everything && Describe("Cluster API's provider for KubeVirt", func() {
	c := bed.Cluster{Name: "virt", Namespace: "virt", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.10"}

	It("boots a control plane and a worker of this project on its VMs", func(ctx context.Context) {
		b := start(ctx, bed.Options{
			Name: "foreign-virt", Hypervisors: []string{}, Providers: append(bed.Providers(), bed.CAPK),
		})
		Expect(bed.Apply(ctx, b.Client, kubevirt.Definitions()...)).To(Succeed())
		DeferCleanup(kubevirt.Start(context.WithoutCancel(ctx), b.Client, b.Runner()))
		Expect(b.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}})).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, onKubeVirt(ctx, c)...)).To(Succeed())
		var nodes corev1.NodeList
		Eventually(func(g Gomega, ctx context.Context) {
			tenant, err := b.TenantClient(ctx, c.Key())
			g.Expect(err).NotTo(HaveOccurred())
			nodes = corev1.NodeList{}
			g.Expect(tenant.List(ctx, &nodes)).To(Succeed())
			g.Expect(nodes.Items).To(HaveEach(WithTransform(ready, BeTrue())))
			g.Expect(nodes.Items).To(HaveLen(c.ControlPlanes + c.Workers))
		}).WithContext(ctx).WithTimeout(readyTimeout).Should(Succeed())

		By("finding the machines' nodes by the IDs of the provider")
		Eventually(func(g Gomega, ctx context.Context) {
			machines := &clusterv1.MachineList{}
			g.Expect(b.Client.List(ctx, machines, client.InNamespace(c.Namespace))).To(Succeed())
			g.Expect(machines.Items).To(HaveLen(c.ControlPlanes + c.Workers))
			for _, m := range machines.Items {
				g.Expect(m.Status.NodeRef.Name).To(Equal(m.Name))
				g.Expect(m.Spec.ProviderID).To(Equal("kubevirt://" + m.Name))
				g.Expect(m.Status.Addresses).To(ContainElement(HaveField("Type", clusterv1.MachineInternalIP)))
			}
		}).WithContext(ctx).WithTimeout(readyTimeout).Should(Succeed())

		By("replacing a control plane machine")
		plane := &unstructured.Unstructured{}
		plane.SetAPIVersion("controlplane.cluster.x-k8s.io/v1beta2")
		plane.SetKind("NovaControlPlane")
		plane.SetNamespace(c.Namespace)
		plane.SetName(c.Name + "-control-plane")
		after := []byte(`{"spec":{"rollout":{"after":"` + metav1.Now().UTC().Format("2006-01-02T15:04:05Z") + `"}}}`)
		Expect(b.Client.Patch(ctx, plane, client.RawPatch("application/merge-patch+json", after))).To(Succeed())
		old := names(nodes.Items)
		Eventually(func(g Gomega, ctx context.Context) {
			tenant, err := b.TenantClient(ctx, c.Key())
			g.Expect(err).NotTo(HaveOccurred())
			nodes = corev1.NodeList{}
			g.Expect(tenant.List(ctx, &nodes)).To(Succeed())
			g.Expect(nodes.Items).To(HaveLen(c.ControlPlanes + c.Workers))
			g.Expect(nodes.Items).To(HaveEach(WithTransform(ready, BeTrue())))
			g.Expect(names(nodes.Items)).NotTo(ConsistOf(old))
		}).WithContext(ctx).WithTimeout(readyTimeout).Should(Succeed())

		cluster := &clusterv1.Cluster{}
		cluster.Namespace, cluster.Name = c.Namespace, c.Name
		Expect(b.Client.Delete(ctx, cluster)).To(Succeed())
		Eventually(func(ctx context.Context) error { return b.Client.Get(ctx, c.Key(), cluster) }).
			WithContext(ctx).WithTimeout(deleteTimeout).Should(MatchError(ContainSubstring("not found")))
		Eventually(func() ([]os.DirEntry, error) { return os.ReadDir(b.Hosts()) }).
			WithTimeout(deleteTimeout).Should(BeEmpty(), "no host is left")
	})
})

// names are the names of nodes.
func names(nodes []corev1.Node) (all []string) {
	for _, node := range nodes {
		all = append(all, node.Name)
	}
	return all
}

// onKubeVirt returns the objects of the template for KubeVirt, as clusterctl makes them.
func onKubeVirt(ctx context.Context, c bed.Cluster) []*unstructured.Unstructured {
	GinkgoHelper()
	programs, err := tools.Paths(ctx, GinkgoWriter, "clusterctl")
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, programs["clusterctl"], "generate", "yaml", "--from", filepath.Join(tools.Root(), "templates", "kubevirt", "cluster-template.yaml"))
	cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "XDG_CONFIG_HOME="+GinkgoT().TempDir(),
		"CLUSTER_NAME="+c.Name, "NAMESPACE="+c.Namespace, "KUBERNETES_VERSION="+bed.KubernetesVersion, "POD_CIDR=10.244.0.0/16",
		"CONTROL_PLANE_MACHINE_COUNT="+strconv.Itoa(c.ControlPlanes), "WORKER_MACHINE_COUNT="+strconv.Itoa(c.Workers),
		"CONTROL_PLANE_ENDPOINT_HOST="+c.Endpoint, "KUBEVIRT_NETWORK=nodes", "KUBEVIRT_IMAGE=registry.example/node:"+bed.KubernetesVersion)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred(), errs.String())
	objects, err := bed.Suit(out, c)
	Expect(err).NotTo(HaveOccurred())
	return objects
}
