package inplace

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	var (
		before   []identity
		workload *bed.Workload
	)

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
		workload, err = b.DeployWorkload(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
	})

	It("have no other machine, Node or boot after an upgrade to the next minor version, and pods are moved only by the drain of their own node", func(ctx context.Context) {
		check, err := b.EndpointCheck(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		stop, err := b.WatchPods(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		endpoint, started := prober.Start(context.WithoutCancel(ctx), 200*time.Millisecond, time.Second, check), time.Now()
		service := prober.Start(context.WithoutCancel(ctx), 200*time.Millisecond, time.Second, workload.Check)
		upgrade(ctx, c, bed.KubernetesVersion)
		awaitUpgrade(ctx, c)
		took, seen, served := time.Since(started), endpoint.Stop(), service.Stop()
		pods := stop()
		AddReportEntry("figure", fmt.Sprintf("an upgrade of three control plane machines in place: %.0f s, %d pods were moved; endpoint: %s; workload: %s", took.Seconds(), pods.Moved, seen, served))
		Expect(planes(ctx, c)).To(Equal(before))
		Expect(seen.Longest().Length).To(BeNumerically("<", longestGap))
		Expect(pods.Restarted).To(BeEmpty())
		Expect(pods.Undrained).To(BeEmpty())
		Expect(pods.Moved).To(BeNumerically(">", 0))
		Expect(served.Longest().Length).To(BeNumerically("<", workloadLoss))
		expectVersion(ctx, c, before)
	})

	It("have the next version although agents, managers and a host are killed meanwhile", func(ctx context.Context) {
		upgrade(ctx, c, bed.NewerVersion)
		seen := map[string]bool{}
		// next waits for the next machine whose version is being changed.
		next := func() (name string) {
			GinkgoHelper()
			Eventually(func(g Gomega, ctx context.Context) {
				at := slices.IndexFunc(before, func(one identity) bool {
					_, err := b.Exec(ctx, one.Machine, "test", "-e", "/var/lib/nova/former")
					return err == nil && !seen[one.Machine]
				})
				g.Expect(at).NotTo(BeNumerically("<", 0))
				name = before[at].Machine
			}).WithContext(ctx).WithTimeout(upgradeTimeout).WithPolling(200 * time.Millisecond).Should(Succeed())
			seen[name] = true
			return name
		}
		By("killing the host agent of the first machine while kubeadm changes the components")
		_, err := b.Exec(ctx, next(), "sh", "-c", "systemctl kill -s KILL nova-host-agent; systemctl reset-failed nova-host-agent; systemctl start nova-host-agent")
		Expect(err).NotTo(HaveOccurred())
		By("killing the managers, and so the extension, while the second machine is changed")
		next()
		for _, name := range []string{"nova-bootstrap", "nova-control-plane"} {
			Expect(b.Kill(name, syscall.SIGKILL)).To(Succeed())
		}
		By("pulling the plug of the third machine")
		host := next()
		virtual, err := b.Hypervisor(c.Hypervisor)
		Expect(err).NotTo(HaveOccurred())
		Expect(virtual.PowerOff(ctx, host)).To(Succeed())
		awaitUpgrade(ctx, c)
		after := planes(ctx, c)
		for i, one := range before {
			if one.Machine == host {
				Expect(after[i].Boot).NotTo(Equal(one.Boot))
				one.Boot = after[i].Boot
			}
			Expect(after[i]).To(Equal(one))
		}
		before = after
		expectVersion(ctx, c, before)
	})

	It("have that version too if they are created from the former image", func(ctx context.Context) {
		machines, _, err := b.Machines(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Client.Delete(ctx, &machines[0])).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			after, _, err := b.Machines(ctx, *c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(after).NotTo(ContainElement(HaveField("UID", machines[0].UID)))
			// It compares the versions of Machines and Nodes.
			g.Expect(b.CheckCluster(ctx, *c)).To(Succeed())
		}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
		expectVersion(ctx, c, planes(ctx, c))
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
		Expect(n.Spec.Unschedulable).To(BeFalse())
		Expect(n.Annotations).NotTo(Or(HaveKey(bed.DrainStarted), HaveKey("nova-platform.io/cordoned")))
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
