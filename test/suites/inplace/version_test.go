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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
)

const (
	// workloadLoss is how long clients may be without a workload whose pods move.
	workloadLoss = 2 * time.Second
)

func versionChanges(hypervisor string, address int) {
	c := &bed.Cluster{
		Name: "minor-" + hypervisor, Namespace: "minor-" + hypervisor, Hypervisor: hypervisor,
		ControlPlanes: 1, Workers: 2, Endpoint: "10.77.0." + strconv.Itoa(address), Version: bed.OlderVersion,
	}
	var (
		before   []identity
		programs []bootstrapv1.KubernetesProgramsSpec
	)

	BeforeAll(func(ctx context.Context) {
		var stop func()
		var err error
		programs, stop, err = b.ServePrograms(context.WithoutCancel(ctx), bed.KubernetesVersion, bed.NewerVersion)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(stop)
		create(ctx, c, "NovaConfigTemplate", field{"Prefer", []string{"spec", "template", "spec", "rollout", "inPlace"}})
		Eventually(b.CheckCluster).WithContext(ctx).WithArguments(*c).WithTimeout(bootTimeout).Should(Succeed())
		before = identities(ctx, c)
		// The kubelets of workers must not be newer than the API servers.
		for _, version := range []string{bed.KubernetesVersion, bed.NewerVersion} {
			template := c.Name + "-control-plane-" + strings.ReplaceAll(version, ".", "-")
			Expect(b.CopyTemplate(ctx, *c, c.Name+"-control-plane", template, bed.VersionTemplate(version))).To(Succeed())
			change(ctx, c, func(cp *controlplanev1.NovaControlPlane) {
				cp.Spec.Version, cp.Spec.MachineTemplate.Spec.InfrastructureRef.Name = version, template
			})
			awaitPlanes(ctx, c)
		}
	})

	It("report a program with a wrong checksum, and keep their version", func(ctx context.Context) {
		wrong := slices.Clone(programs)
		wrong[0].Kubelet.SHA256 = strings.Repeat("0", 64)
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Platform.KubernetesPrograms = wrong })
		toVersion(ctx, c, bed.KubernetesVersion)
		failed := ""
		Eventually(func(g Gomega, ctx context.Context) {
			_, workers, err := b.Machines(ctx, *c)
			g.Expect(err).NotTo(HaveOccurred())
			for i := range workers {
				if strings.Contains(updating(workers[i]), "kubelet "+bed.KubernetesVersion+" has another SHA-256 than 000") {
					failed = workers[i].Name
				}
			}
			g.Expect(failed).NotTo(BeEmpty())
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
		Expect(b.Exec(ctx, failed, "sh", "-c", "kubelet --version; kubeadm version -o short; ls -A /usr/bin | grep nova-kube; ls -d /var/lib/nova/former*; true")).
			To(Equal("Kubernetes " + bed.OlderVersion + "\n" + bed.OlderVersion))
		Expect(identities(ctx, c)).To(Equal(before))
	})

	It("have the next minor version although an agent, the manager and a host are killed meanwhile", func(ctx context.Context) {
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Platform.KubernetesPrograms = programs })
		seen := map[string]bool{}
		// replacing waits until the former programs of a machine are kept.
		replacing := func(machine string) {
			GinkgoHelper()
			_, err := b.Exec(ctx, machine, "timeout", "120", "sh", "-c", "until [ -e /var/lib/nova/former ]; do sleep 0.05; done")
			Expect(err).NotTo(HaveOccurred())
		}
		By("killing the host agent of the first machine, at its begin and while the programs are replaced")
		agent := applying(ctx, c, seen)
		const kill = "systemctl kill -s KILL nova-host-agent; systemctl reset-failed nova-host-agent; systemctl start nova-host-agent"
		_, err := b.Exec(ctx, agent, "sh", "-c", kill)
		Expect(err).NotTo(HaveOccurred())
		replacing(agent)
		_, err = b.Exec(ctx, agent, "sh", "-c", kill)
		Expect(err).NotTo(HaveOccurred())
		By("killing the manager, and so the extension, while the second machine is changed")
		virtual, err := b.Hypervisor(c.Hypervisor)
		Expect(err).NotTo(HaveOccurred())
		machine := applying(ctx, c, seen)
		Expect(b.Kill("nova-bootstrap", syscall.SIGKILL)).To(Succeed())
		By("pulling the plug of the second machine while the programs are replaced")
		replacing(machine)
		Expect(virtual.PowerOff(ctx, machine)).To(Succeed())
		awaitVersion(ctx, c, bed.KubernetesVersion)
		Expect(b.Exec(ctx, agent, "journalctl", "--unit", "nova-host-agent", "--output", "cat")).To(ContainSubstring("Restoring the former version of Kubernetes"))
		after := identities(ctx, c)
		for i, one := range before {
			if one.Machine == machine {
				Expect(after[i].Boot).NotTo(Equal(one.Boot))
				one.Boot = after[i].Boot
			}
			Expect(after[i]).To(Equal(one))
			_, err := b.Exec(ctx, one.Machine, "test", "!", "-e", "/var/lib/nova/former")
			Expect(err).NotTo(HaveOccurred(), "no change is unfinished")
		}
		before = after
	})

	It("have the newest version, and pods are moved only by the drain of their own node", func(ctx context.Context) {
		workload, err := b.DeployWorkload(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		kept := daemonPods(ctx, c)
		Expect(kept).NotTo(BeEmpty())
		stop, err := b.WatchPods(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		service, started := prober.Start(context.WithoutCancel(ctx), 200*time.Millisecond, time.Second, workload.Check), time.Now()
		toVersion(ctx, c, bed.NewerVersion)
		awaitVersion(ctx, c, bed.NewerVersion)
		took, seen := time.Since(started), service.Stop()
		pods := stop()
		AddReportEntry("figure", fmt.Sprintf("the next minor version of two workers in place: %.0f s, %d pods were moved; workload: %s", took.Seconds(), pods.Moved, seen))
		Expect(pods.Restarted).To(BeEmpty())
		Expect(pods.Undrained).To(BeEmpty())
		Expect(pods.Moved).To(BeNumerically(">", 0))
		Expect(seen.Longest().Length).To(BeNumerically("<", workloadLoss))
		Expect(identities(ctx, c)).To(Equal(before))
		Expect(daemonPods(ctx, c)).To(Equal(kept), "their containers run on")
	})

	It("have that version too if they are created from the former image", func(ctx context.Context) {
		deployment := group(ctx, c)
		patched := deployment.DeepCopy()
		patched.Spec.Replicas = ptr.To(int32(3))
		Expect(b.Client.Patch(ctx, patched, client.MergeFrom(deployment))).To(Succeed())
		c.Workers = 3
		// It compares the versions of Machines and Nodes.
		Eventually(b.CheckCluster).WithContext(ctx).WithArguments(*c).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
		Expect(identities(ctx, c)).To(ContainElements(before))
		for _, one := range identities(ctx, c) {
			Expect(node(ctx, c, one.Machine).Status.NodeInfo.KubeletVersion).To(Equal(bed.NewerVersion))
		}
	})
}

// toVersion changes the version of the workers.
func toVersion(ctx context.Context, c *bed.Cluster, version string) {
	GinkgoHelper()
	deployment := group(ctx, c)
	patched := deployment.DeepCopy()
	patched.Spec.Template.Spec.Version, patched.Spec.Rollout.Strategy = version, oneByOne()
	Expect(b.Client.Patch(ctx, patched, client.MergeFrom(deployment))).To(Succeed())
}

// awaitVersion waits until all workers have a version, and their Nodes are as before.
func awaitVersion(ctx context.Context, c *bed.Cluster, version string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		_, workers, err := b.Machines(ctx, *c)
		g.Expect(err).NotTo(HaveOccurred())
		for i := range workers {
			g.Expect(workers[i].Spec.Version).To(Equal(version))
		}
	}).WithContext(ctx).WithTimeout(2*changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
	await(ctx, c)
	for _, one := range identities(ctx, c) {
		n := node(ctx, c, one.Machine)
		Expect(n.Status.NodeInfo.KubeletVersion).To(Equal(version))
		Expect(n.Spec.Unschedulable).To(BeFalse())
		Expect(n.Annotations).NotTo(Or(HaveKey(bed.DrainStarted), HaveKey("nova-platform.io/cordoned")))
	}
}

// daemonPods are the pods of DaemonSets, with the restarts of their containers.
func daemonPods(ctx context.Context, c *bed.Cluster) map[string]int32 {
	GinkgoHelper()
	workload, err := b.TenantClient(ctx, c.Key())
	Expect(err).NotTo(HaveOccurred())
	pods := &corev1.PodList{}
	Expect(workload.List(ctx, pods)).To(Succeed())
	found := map[string]int32{}
	for i := range pods.Items {
		if owner := metav1.GetControllerOf(&pods.Items[i]); owner != nil && owner.Kind == "DaemonSet" {
			found[pods.Items[i].Name+" "+string(pods.Items[i].UID)] = bed.Restarts(&pods.Items[i])
		}
	}
	return found
}
