package controlplane

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
)

// manifest is the manifest of the API server's static pod.
const manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"

// lapse is how long members may take to answer while others work on the same
// processors. A replacement takes several times as long to boot and join.
const lapse = 8 * time.Second

// keepingMembers does something and fails if fewer voting members of etcd
// answered meanwhile than are to be kept.
func keepingMembers(ctx context.Context, c *bed.Cluster, kept int, do func()) {
	GinkgoHelper()
	members, err := b.Etcd(ctx, *c)
	Expect(err).NotTo(HaveOccurred())
	p := prober.Start(ctx, time.Second, 2*time.Second, func(ctx context.Context) error {
		health, err := members.Health(ctx)
		if err != nil {
			return err
		}
		voters := 0
		for _, m := range health.Members {
			if !m.Learner && m.Answers {
				voters++
			}
		}
		if voters < kept {
			return fmt.Errorf("%d voting members answer", voters)
		}
		return nil
	})
	do()
	seen := p.Stop()
	figuref("%d voting members of etcd: %s", kept, seen)
	Expect(seen.Longest().Length).To(BeNumerically("<", lapse), "fewer than %d voting members", kept)
}

var _ = describeFull("The redundancy of a control plane", func() {
	c, p := cluster("redundant", 31, 3, 0), &promises{}

	BeforeAll(func(ctx context.Context) {
		create(ctx, c)
	})

	It("is kept when the Nodes of all three are NotReady at once", func(ctx context.Context) {
		check := &clusterv1.MachineHealthCheck{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name},
			Spec: clusterv1.MachineHealthCheckSpec{
				ClusterName: c.Name,
				Selector:    metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}},
				Checks: clusterv1.MachineHealthCheckChecks{UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To(int32(5))},
				}},
			},
		}
		Expect(b.Client.Create(ctx, check)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(b.Client.Delete(ctx, check)).To(Succeed()) })
		before := names(ctx, c)
		started := time.Now()
		seen := probing(ctx, c, func() {
			keepingMembers(ctx, c, 2, func() {
				for _, name := range before {
					_, err := b.Exec(ctx, name, "systemctl", "disable", "--now", "kubelet")
					Expect(err).NotTo(HaveOccurred())
				}
				replaced(ctx, c, before...)
			})
		})
		p.withinf(plannedLoss, seen.Longest().Length, "three machines given up at once were replaced in %.0f s, API: %s", time.Since(started).Seconds(), seen)
	})

	It("keeps the only API server that serves when its machine is deleted", func(ctx context.Context) {
		good := holder(ctx, c)
		bad := slices.DeleteFunc(names(ctx, c), func(name string) bool { return name == good })
		for _, name := range bad {
			_, err := b.Exec(ctx, name, "sed", "-i", `s/^    - kube-apiserver$/&\n    - --no-such-flag/`, manifest)
			Expect(err).NotTo(HaveOccurred())
		}
		down(ctx, c, bad...)
		seen := probing(ctx, c, func() {
			remove(ctx, c, good)
			held := func(g Gomega, ctx context.Context) {
				machine := &clusterv1.Machine{}
				g.Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: good}, machine)).To(Succeed())
				g.Expect(conditions.GetMessage(machine, controlplanev1.MachineSafeToDeleteCondition)).To(ContainSubstring(controlplanev1.SkipRedundancyAnnotation))
			}
			Eventually(held).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
			By("waiting until the replacement serves, which is not enough")
			Eventually(func(ctx context.Context) []string { return readyMachines(ctx, c) }).
				WithContext(ctx).WithTimeout(changeTimeout).Should(ContainElement(Not(BeElementOf(append(bad, good)))), func() string { return story(ctx, c) })
			Consistently(held).WithContext(ctx).WithTimeout(20 * time.Second).Should(Succeed())
			By("correcting the API servers")
			for _, name := range bad {
				_, err := b.Exec(ctx, name, "sed", "-i", "/--no-such-flag/d", manifest)
				Expect(err).NotTo(HaveOccurred())
			}
			replaced(ctx, c, good)
		})
		p.withinf(plannedLoss, seen.Longest().Length, "the machine of the last API server that served was deleted, API: %s", seen)
	})

	It("returns soon when a move recreated a machine whose member was removed", func(ctx context.Context) {
		at := holder(ctx, c)
		victim := slices.DeleteFunc(names(ctx, c), func(name string) bool { return name == at })[0]
		members, err := b.Etcd(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		started := time.Now()
		seen := probing(ctx, c, func() {
			keepingQuorum(ctx, c, func() {
				// clusterctl recreates a Machine that was being deleted with its
				// annotations, and without its deletion timestamp.
				Expect(members.Remove(ctx, victim)).To(Succeed())
				machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: victim}}
				Expect(b.Client.Patch(ctx, machine, client.RawPatch(types.MergePatchType,
					[]byte(`{"metadata":{"annotations":{"`+controlplanev1.JoinedAnnotation+`":""}}}`)))).To(Succeed())
				replaced(ctx, c, victim)
			})
		})
		p.withinf(plannedLoss, seen.Longest().Length, "a machine without its member was replaced in %.0f s, API: %s", time.Since(started).Seconds(), seen)
	})

	It("leaves nothing when it is deleted", func(ctx context.Context) {
		deleteCluster(ctx, c)
	})

	p.kept()
})

// down waits until the API servers of machines do not answer.
func down(ctx context.Context, c *bed.Cluster, names ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		for _, machine := range machines(ctx, c) {
			if !slices.Contains(names, machine.Name) {
				continue
			}
			conn, err := b.Dial(ctx, "tcp", net.JoinHostPort(bed.InternalIP(&machine), "6443"))
			if err == nil {
				_ = conn.Close()
			}
			g.Expect(err).To(HaveOccurred(), "the API server of %s answers", machine.Name)
		}
	}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed())
}

// readyMachines are the machines that are Ready.
func readyMachines(ctx context.Context, c *bed.Cluster) []string {
	var found []string
	for _, machine := range machines(ctx, c) {
		if conditions.IsTrue(&machine, clusterv1.MachineReadyCondition) {
			found = append(found, machine.Name)
		}
	}
	return found
}
