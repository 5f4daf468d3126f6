package inplace

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
)

// upgradeTimeout is how long the upgrade of three control plane machines may take.
const upgradeTimeout = 15 * time.Minute

// controlPlaneUpgrades changes the version of a control plane of three. With Only no
// machine is replaced, also if a change fails for long.
func controlPlaneUpgrades(hypervisor string, address int) {
	c := &bed.Cluster{
		Name: "upgrade-" + hypervisor, Namespace: "upgrade-" + hypervisor, Hypervisor: hypervisor, Version: bed.OlderVersion,
		ControlPlanes: 3, Workers: 0, Endpoint: "10.77.0." + strconv.Itoa(address),
	}
	var before []identity

	BeforeAll(func(ctx context.Context) {
		programs, stop, err := b.ServePrograms(context.WithoutCancel(ctx), bed.KubernetesVersion, bed.NewerVersion)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(stop)
		platform, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&bootstrapv1.PlatformSpec{KubernetesPrograms: programs})
		Expect(err).NotTo(HaveOccurred())
		create(ctx, c, "NovaControlPlane",
			field{"Only", []string{"spec", "rollout", "inPlace"}},
			field{platform["kubernetesPrograms"], []string{"spec", "platform", "kubernetesPrograms"}})
		Eventually(b.CheckCluster).WithContext(ctx).WithArguments(*c).WithTimeout(bootTimeout).Should(Succeed())
		before = planes(ctx, c)
		Expect(before).To(HaveLen(3))
	})

	It("have no other machine, Node or boot after an upgrade to the next minor version", func(ctx context.Context) {
		check, err := b.EndpointCheck(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		endpoint, started := prober.Start(context.WithoutCancel(ctx), 200*time.Millisecond, time.Second, check), time.Now()
		upgrade(ctx, c, bed.KubernetesVersion)
		awaitUpgrade(ctx, c)
		seen := endpoint.Stop()
		AddReportEntry("figure", fmt.Sprintf("an upgrade of three control plane machines in place: %.0f s; endpoint: %s", time.Since(started).Seconds(), seen))
		Expect(planes(ctx, c)).To(Equal(before))
		Expect(seen.Longest().Length).To(BeNumerically("<", longestGap))
		expectVersion(ctx, c, before)
	})
}

// upgrade sets the version of the control plane.
func upgrade(ctx context.Context, c *bed.Cluster, version string) {
	GinkgoHelper()
	c.Version = version
	change(ctx, c, func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Version = version })
}

// awaitUpgrade waits until all control plane machines have the version.
func awaitUpgrade(ctx context.Context, c *bed.Cluster) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		cp, err := b.ControlPlane(ctx, *c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(cp.Status.Versions).To(HaveLen(1))
		g.Expect(cp.Status.Versions[0].Version).To(Equal(c.Version))
	}).WithContext(ctx).WithTimeout(upgradeTimeout).Should(Succeed())
	awaitPlanes(ctx, c)
}

// expectVersion requires that machines, kubelets and components have the version, and
// that no change is unfinished.
func expectVersion(ctx context.Context, c *bed.Cluster, of []identity) {
	GinkgoHelper()
	machines, _, err := b.Machines(ctx, *c)
	Expect(err).NotTo(HaveOccurred())
	for i := range machines {
		Expect(machines[i].Spec.Version).To(Equal(c.Version))
	}
	workload, err := b.TenantClient(ctx, c.Key())
	Expect(err).NotTo(HaveOccurred())
	for _, one := range of {
		n := node(ctx, c, one.Machine)
		Expect(n.Status.NodeInfo.KubeletVersion).To(Equal(c.Version))
		Expect(configured(n).Status).To(Equal(corev1.ConditionTrue))
		for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			pod := &corev1.Pod{}
			Expect(workload.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: name + "-" + one.Machine}, pod)).To(Succeed())
			Expect(pod.Spec.Containers[0].Image).To(HaveSuffix(":" + c.Version))
		}
		etcd := &corev1.Pod{}
		Expect(workload.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "etcd-" + one.Machine}, etcd)).To(Succeed())
		images, err := b.Exec(ctx, one.Machine, "kubeadm", "config", "images", "list", "--kubernetes-version", c.Version)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Fields(images)).To(ContainElement(etcd.Spec.Containers[0].Image))
		_, err = b.Exec(ctx, one.Machine, "test", "!", "-e", "/var/lib/nova/former", "-a", "!", "-e", "/var/lib/nova/etcd")
		Expect(err).NotTo(HaveOccurred(), "no change is unfinished")
	}
}
