package inplace

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// longestGap is how long clients may be without an API server: the endpoint's
// address moves once, from the machine that is changed.
const longestGap = 10 * time.Second

func controlPlaneChanges(hypervisor string, address int) {
	c := &bed.Cluster{
		Name: "planes-" + hypervisor, Namespace: "planes-" + hypervisor, Hypervisor: hypervisor,
		ControlPlanes: 3, Workers: 0, Endpoint: "10.77.0." + strconv.Itoa(address),
	}
	var before []identity

	BeforeAll(func(ctx context.Context) {
		createWith(ctx, c, func(o *unstructured.Unstructured) {
			switch {
			case o.GetKind() == "NovaControlPlane":
				set(o, field{"Prefer", []string{"spec", "rollout", "inPlace"}},
					field{int64(8), []string{"spec", "platform", "certificateValidityPeriodDays"}})
			case o.GetName() == c.Name+"-control-plane" && strings.HasSuffix(o.GetKind(), "MachineTemplate"):
				set(o, hardware(hypervisor, smallCPUs, smallMemoryMiB)...)
			}
		})
		Eventually(b.CheckCluster).WithContext(ctx).WithArguments(*c).WithTimeout(bootTimeout).Should(Succeed())
		before = planes(ctx, c)
		Expect(before).To(HaveLen(3))
	})

	It("have no other machine, Node or boot after a file and arguments of the API server and the kubelet have changed", func(ctx context.Context) {
		check, err := b.EndpointCheck(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		endpoint, started := prober.Start(context.WithoutCancel(ctx), 200*time.Millisecond, time.Second, check), time.Now()
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) {
			cp.Spec.Config.Files = append(cp.Spec.Config.Files, bootstrapv1.File{Path: "/etc/nova-test/in-place", Content: "changed\n", Permissions: "0644"})
			cp.Spec.Config.Kubelet.ExtraArgs = append(cp.Spec.Config.Kubelet.ExtraArgs, bootstrapv1.Arg{Name: "max-pods", Value: ptr.To("77")})
			cp.Spec.Platform.APIServer.ExtraArgs = append(cp.Spec.Platform.APIServer.ExtraArgs, bootstrapv1.Arg{Name: "event-ttl", Value: ptr.To("2h")})
		})
		awaitPlanes(ctx, c)
		seen := endpoint.Stop()
		AddReportEntry("figure", fmt.Sprintf("a change of three control plane machines in place: %.0f s; endpoint: %s", time.Since(started).Seconds(), seen))
		Expect(planes(ctx, c)).To(Equal(before))
		Expect(seen.Longest().Length).To(BeNumerically("<", longestGap))
		for _, one := range before {
			Expect(b.Exec(ctx, one.Machine, "cat", "/etc/nova-test/in-place")).To(Equal("changed"))
			Expect(b.Exec(ctx, one.Machine, "sh", "-c", "tr '\\0' '\\n' </proc/$(pidof kube-apiserver)/cmdline")).To(ContainSubstring("--event-ttl=2h"))
			n := node(ctx, c, one.Machine)
			Expect(n.Status.Allocatable.Pods().Value()).To(BeEquivalentTo(77))
			Expect(configured(n).Status).To(Equal(corev1.ConditionTrue))
		}
	})

	It("get CPUs and memory while they run", func(ctx context.Context) {
		check, err := b.EndpointCheck(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		endpoint, started := prober.Start(context.WithoutCancel(ctx), 200*time.Millisecond, time.Second, check), time.Now()
		cp, err := b.ControlPlane(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		larger := largerTemplate(ctx, c, cp.Spec.MachineTemplate.Spec.InfrastructureRef)
		growing(ctx, c, before, func() {
			change(ctx, c, func(cp *controlplanev1.NovaControlPlane) {
				cp.Spec.MachineTemplate.Spec.InfrastructureRef.Name = larger
			})
		})
		awaitPlanes(ctx, c)
		seen := endpoint.Stop()
		AddReportEntry("figure", fmt.Sprintf("CPUs and memory of three control plane machines in place: %.0f s; endpoint: %s", time.Since(started).Seconds(), seen))
		Expect(planes(ctx, c)).To(Equal(before))
		Expect(seen.Longest().Length).To(BeNumerically("<", longestGap))
		expectAgents(ctx, c, before)
	})

	It("renew certificates that expire soon", func(ctx context.Context) {
		check, err := b.EndpointCheck(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		for _, one := range before {
			Expect(b.CheckCertificates(ctx, one.Machine, 7)).To(Succeed())
			Expect(b.CheckCertificates(ctx, one.Machine, 9)).NotTo(Succeed())
		}
		endpoint, started := prober.Start(context.WithoutCancel(ctx), 200*time.Millisecond, time.Second, check), time.Now()
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) {
			cp.Spec.Platform.CertificateValidityPeriodDays, cp.Spec.Rollout.Before.CertificatesExpiryDays = 30, 9
		})
		Eventually(func(g Gomega) {
			for _, one := range before {
				g.Expect(b.CheckCertificates(ctx, one.Machine, 20)).To(Succeed())
			}
		}).WithContext(ctx).WithTimeout(2 * changeTimeout).Should(Succeed())
		awaitPlanes(ctx, c)
		seen := endpoint.Stop()
		AddReportEntry("figure", fmt.Sprintf("renewed certificates of three control plane machines: %.0f s; endpoint: %s", time.Since(started).Seconds(), seen))
		Expect(planes(ctx, c)).To(Equal(before))
		Expect(seen.Longest().Length).To(BeNumerically("<", longestGap))
	})

	It("keep the keys of the cluster out of the workload cluster", func(ctx context.Context) {
		record, err := b.Exec(ctx, before[0].Machine, "cat", "/var/lib/nova/settings.json")
		Expect(err).NotTo(HaveOccurred())
		Expect(record).NotTo(ContainSubstring("/etc/kubernetes/pki/"))
		Expect(strings.Count(record, "PRIVATE KEY")).To(BeZero())
	})

	It("have the new settings although agents, managers and a host are killed meanwhile", func(ctx context.Context) {
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) {
			cp.Spec.Config.Files = append(cp.Spec.Config.Files, bootstrapv1.File{Path: "/etc/nova-test/killed", Content: "changed\n", Permissions: "0644"})
			cp.Spec.Platform.APIServer.ExtraArgs = []bootstrapv1.Arg{{Name: "event-ttl", Value: ptr.To("3h")}}
		})
		seen := map[string]bool{}
		By("killing the host agent of the first machine, whenever it runs again")
		agent := applying(ctx, c, seen)
		for range 4 {
			_, err := b.Exec(ctx, agent, "sh", "-c", "systemctl kill -s KILL nova-host-agent; systemctl reset-failed nova-host-agent; systemctl start nova-host-agent")
			Expect(err).NotTo(HaveOccurred())
		}
		By("killing the managers, and so the extension, while the second machine is changed")
		applying(ctx, c, seen)
		for _, name := range []string{"nova-bootstrap", "nova-control-plane"} {
			Expect(b.Kill(name, syscall.SIGKILL)).To(Succeed())
		}
		By("pulling the plug of the third machine")
		host := applying(ctx, c, seen)
		virtual, err := b.Hypervisor(c.Hypervisor)
		Expect(err).NotTo(HaveOccurred())
		Expect(virtual.PowerOff(ctx, host)).To(Succeed())
		awaitPlanes(ctx, c)
		after := planes(ctx, c)
		for i, one := range before {
			Expect(b.Exec(ctx, one.Machine, "cat", "/etc/nova-test/killed")).To(Equal("changed"))
			Expect(b.Exec(ctx, one.Machine, "sh", "-c", "tr '\\0' '\\n' </proc/$(pidof kube-apiserver)/cmdline")).To(ContainSubstring("--event-ttl=3h"))
			_, err := b.Exec(ctx, one.Machine, "test", "!", "-e", "/var/lib/nova/manifests")
			Expect(err).NotTo(HaveOccurred(), "no change is unfinished")
			if one.Machine == host {
				Expect(after[i].Boot).NotTo(Equal(one.Boot))
				one.Boot = after[i].Boot
			}
			Expect(after[i]).To(Equal(one))
		}
		before = after
	})

	It("stop with Only if a field needs other machines", func(ctx context.Context) {
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) {
			cp.Spec.Rollout.InPlace = bootstrapv1.InPlaceOnly
			cp.Spec.Config.PreKubeadmCommands = append(cp.Spec.Config.PreKubeadmCommands, "true")
		})
		Eventually(func(g Gomega, ctx context.Context) {
			cp, err := b.ControlPlane(ctx, *c)
			g.Expect(err).NotTo(HaveOccurred())
			found := conditions.Get(cp, controlplanev1.RollingOutCondition)
			g.Expect(found).NotTo(BeNil())
			g.Expect(found.Status).To(Equal(metav1.ConditionTrue))
			g.Expect(found.Message).To(ContainSubstring("need another machine: config.preKubeadmCommands"))
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed())
		Consistently(planes).WithContext(ctx).WithArguments(c).WithTimeout(10 * time.Second).Should(Equal(before))
	})
}

func planes(ctx context.Context, c *bed.Cluster) []identity {
	GinkgoHelper()
	machines, _, err := b.Machines(ctx, *c)
	Expect(err).NotTo(HaveOccurred())
	return identitiesOf(ctx, c, machines)
}

func change(ctx context.Context, c *bed.Cluster, how func(*controlplanev1.NovaControlPlane)) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		cp, err := b.ControlPlane(ctx, *c)
		g.Expect(err).NotTo(HaveOccurred())
		before := cp.DeepCopy()
		how(cp)
		g.Expect(b.Client.Patch(ctx, cp, client.MergeFrom(before))).To(Succeed())
	}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed())
}

// awaitPlanes waits until all control plane machines have the settings of their
// control plane.
func awaitPlanes(ctx context.Context, c *bed.Cluster) {
	GinkgoHelper()
	Eventually(b.CheckRolledOut).WithContext(ctx).WithArguments(*c).WithTimeout(2*changeTimeout).Should(Succeed(), func() string {
		out := &strings.Builder{}
		machines, _, err := b.Machines(ctx, *c)
		if err != nil {
			return err.Error()
		}
		for i := range machines {
			harness.PrintConditions(out, "Machine", &machines[i], machines[i].Name)
		}
		return out.String()
	})
}
