package workers

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// startup is how long a machine may take to become a node.
const startup = 150

// healthCheck looks after the workers of a cluster.
func healthCheck(c *bed.Cluster, when clusterv1.MachineHealthCheckRemediationTriggerIf) *clusterv1.MachineHealthCheck {
	unhealthy := func(status corev1.ConditionStatus) clusterv1.UnhealthyNodeCondition {
		return clusterv1.UnhealthyNodeCondition{Type: corev1.NodeReady, Status: status, TimeoutSeconds: ptr.To[int32](10)}
	}
	return &clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "workers"},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: c.Name,
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineDeploymentNameLabel: c.Name + "-worker"}},
			Checks: clusterv1.MachineHealthCheckChecks{
				NodeStartupTimeoutSeconds: ptr.To[int32](startup),
				UnhealthyNodeConditions:   []clusterv1.UnhealthyNodeCondition{unhealthy(corev1.ConditionUnknown), unhealthy(corev1.ConditionFalse)},
			},
			Remediation: clusterv1.MachineHealthCheckRemediation{TriggerIf: when},
		},
	}
}

// atMost lets machines be replaced while no more than so many are unhealthy.
func atMost(count int32) clusterv1.MachineHealthCheckRemediationTriggerIf {
	return clusterv1.MachineHealthCheckRemediationTriggerIf{UnhealthyLessThanOrEqualTo: ptr.To(intstr.FromInt32(count))}
}

// heals are the specs about unhealthy machines.
func heals(c *bed.Cluster) {
	stop := func(ctx context.Context, name string) {
		GinkgoHelper()
		_, err := b.Exec(ctx, name, "systemctl", "disable", "--now", "kubelet")
		Expect(err).NotTo(HaveOccurred())
	}
	// check is the health check as it is now.
	check := func(ctx context.Context) (*clusterv1.MachineHealthCheck, error) {
		found := &clusterv1.MachineHealthCheck{}
		return found, b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: "workers"}, found)
	}
	// when changes the conditions under which machines are replaced.
	when := func(ctx context.Context, trigger clusterv1.MachineHealthCheckRemediationTriggerIf) {
		GinkgoHelper()
		found, err := check(ctx)
		Expect(err).NotTo(HaveOccurred())
		before := found.DeepCopy()
		found.Spec.Remediation.TriggerIf = trigger
		Expect(b.Client.Patch(ctx, found, client.MergeFrom(before))).To(Succeed())
	}
	// refused is the reason of the health check why no machine is replaced.
	refused := func(ctx context.Context) (string, error) {
		found, err := check(ctx)
		if err != nil || conditions.IsTrue(found, clusterv1.MachineHealthCheckRemediationAllowedCondition) {
			return "", err
		}
		return conditions.GetMessage(found, clusterv1.MachineHealthCheckRemediationAllowedCondition), nil
	}
	// replaced waits until a machine is deleted and the cluster is complete again.
	replaced := func(ctx context.Context, gone string) {
		GinkgoHelper()
		started := time.Now()
		Eventually(names).WithContext(ctx).WithArguments(c).WithTimeout(changeTimeout).
			ShouldNot(ContainElement(gone), func() string { return story(ctx, c) })
		awaitHealthy(ctx, c, changeTimeout)
		figuref("replaced by a health check: %.0f s", time.Since(started).Seconds())
	}

	It("are replaced when their node is unhealthy", func(ctx context.Context) {
		Expect(b.Client.Create(ctx, healthCheck(c, atMost(1)))).To(Succeed())
		Eventually(func(ctx context.Context) (*int32, error) {
			found, err := check(ctx)
			return found.Status.CurrentHealthy, err
		}).WithContext(ctx).WithTimeout(reportTimeout).Should(HaveValue(BeEquivalentTo(2)))
		victim := namesNow(ctx, c)[0]
		stop(ctx, victim)
		replaced(ctx, victim)
	})

	It("are not replaced when too many are unhealthy, until a user changes the limit", func(ctx context.Context) {
		both := namesNow(ctx, c)
		when(ctx, atMost(0))
		stop(ctx, both[0])
		Eventually(refused).WithContext(ctx).WithTimeout(reportTimeout).
			Should(ContainSubstring("Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy (total: 2, unhealthy: 1, maxUnhealthy: 0)"))
		By("saying a range that this is not in")
		when(ctx, clusterv1.MachineHealthCheckRemediationTriggerIf{UnhealthyInRange: "[2-2]"})
		Eventually(refused).WithContext(ctx).WithTimeout(reportTimeout).
			Should(ContainSubstring("does not fall within the range (total: 2, unhealthy: 1, unhealthyRange: [2-2])"))
		Consistently(names).WithContext(ctx).WithArguments(c).WithTimeout(5 * time.Second).Should(Equal(both))
		By("saying a range that it is in")
		when(ctx, clusterv1.MachineHealthCheckRemediationTriggerIf{UnhealthyInRange: "[1-1]"})
		replaced(ctx, both[0])
	})

	It("are replaced when they never become a node", func(ctx context.Context) {
		before := namesNow(ctx, c)
		scale(ctx, c, 3)
		var dead string
		Eventually(func(g Gomega, ctx context.Context) {
			found, err := b.VMsOf(ctx, *c)
			g.Expect(err).NotTo(HaveOccurred())
			own, err := names(ctx, c)
			g.Expect(err).NotTo(HaveOccurred())
			for _, name := range own {
				if !slices.Contains(before, name) && slices.Contains(found, name) {
					dead = name
				}
			}
			g.Expect(dead).NotTo(BeEmpty())
			g.Expect(b.SetLinks(dead, false)).To(Succeed(), "its cable is pulled while it boots")
		}).WithContext(ctx).WithTimeout(reportTimeout).WithPolling(100 * time.Millisecond).Should(Succeed())
		started := time.Now()
		Eventually(names).WithContext(ctx).WithArguments(c).WithTimeout(startup*time.Second+changeTimeout).
			ShouldNot(ContainElement(dead), func() string { return story(ctx, c) })
		figuref("a machine that never became a node was gone after %.0f s", time.Since(started).Seconds())
		awaitHealthy(ctx, c, changeTimeout)
	})
}
