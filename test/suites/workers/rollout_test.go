package workers

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// use lets workers be made from another machine template, which is a copy of
// the first one if it is not there yet.
func use(ctx context.Context, c *bed.Cluster, template string, more func(*clusterv1.MachineDeployment)) {
	GinkgoHelper()
	change(ctx, c, func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Spec.InfrastructureRef.Name = template
		more(md)
	})
}

// surge lets so many machines be there beyond the number, and so many be away.
func surge(beyond, away int32) clusterv1.MachineDeploymentRolloutStrategy {
	return clusterv1.MachineDeploymentRolloutStrategy{
		Type: clusterv1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: clusterv1.MachineDeploymentRolloutStrategyRollingUpdate{
			MaxSurge: ptr.To(intstr.FromInt32(beyond)), MaxUnavailable: ptr.To(intstr.FromInt32(away)),
		},
	}
}

// rolls are the specs about changes that need new machines.
func rolls(c *bed.Cluster) {
	first, next, third := c.Name+"-worker", c.Name+"-worker-next", c.Name+"-worker-third"
	var originals []string

	It("are replaced one by one when their template changes", func(ctx context.Context) {
		scale(ctx, c, 2)
		awaitHealthy(ctx, c, bootTimeout)
		originals = namesNow(ctx, c)
		started := time.Now()
		Expect(b.CopyTemplate(ctx, *c, first, next, hypervisor(c).Facts().Template)).To(Succeed())
		use(ctx, c, next, func(md *clusterv1.MachineDeployment) { md.Spec.Rollout.Strategy = surge(1, 0) })
		Eventually(func(g Gomega, ctx context.Context) {
			own, err := workers(ctx, c)
			g.Expect(err).NotTo(HaveOccurred())
			whole := slices.DeleteFunc(own, func(m clusterv1.Machine) bool {
				return m.DeletionTimestamp != nil || !m.Status.NodeRef.IsDefined()
			})
			// A broken time limit is final: later observations cannot fix it.
			if len(whole) < 2 {
				StopTrying("An old worker went before a new one was there").Attach("workers", len(whole)).Now()
			}
			g.Expect(b.CheckCluster(ctx, *c)).To(Succeed())
			g.Expect(names(ctx, c)).NotTo(ContainElement(BeElementOf(originals)))
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
		figuref("rolling out two workers, one beyond: %.0f s", time.Since(started).Seconds())
	})

	It("go back when the old template is applied again", func(ctx context.Context) {
		before := namesNow(ctx, c)
		started := time.Now()
		use(ctx, c, first, func(md *clusterv1.MachineDeployment) { md.Spec.Rollout.Strategy = surge(0, 1) })
		Eventually(func(g Gomega, ctx context.Context) {
			own, err := workers(ctx, c)
			g.Expect(err).NotTo(HaveOccurred())
			if len(own) > 2 {
				StopTrying("A machine beyond the number was made").Attach("machines", len(own)).Now()
			}
			g.Expect(b.CheckCluster(ctx, *c)).To(Succeed())
			g.Expect(own).NotTo(ContainElement(HaveField("Name", BeElementOf(before))))
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
		figuref("rolling back two workers, none beyond: %.0f s", time.Since(started).Seconds())
	})

	It("wait for their deletion with the strategy OnDelete", func(ctx context.Context) {
		before := namesNow(ctx, c)
		Expect(b.CopyTemplate(ctx, *c, first, third, hypervisor(c).Facts().Template)).To(Succeed())
		use(ctx, c, third, func(md *clusterv1.MachineDeployment) {
			md.Spec.Rollout.Strategy = clusterv1.MachineDeploymentRolloutStrategy{Type: clusterv1.OnDeleteMachineDeploymentStrategyType}
		})
		Eventually(func(ctx context.Context) (int32, error) {
			md, err := group(ctx, c)
			if err != nil || md.Status.ObservedGeneration != md.Generation {
				return -1, err
			}
			return ptr.Deref(md.Status.UpToDateReplicas, -1), nil
		}).WithContext(ctx).WithTimeout(reportTimeout).Should(BeZero(), "both are known to be old")
		Consistently(names).WithContext(ctx).WithArguments(c).WithTimeout(5*time.Second).Should(Equal(before), "and both stay")

		By("deleting one")
		gone, err := machine(ctx, c, before[0])
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Client.Delete(ctx, gone)).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			md, err := group(ctx, c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(md.Status.UpToDateReplicas).To(HaveValue(BeEquivalentTo(1)))
			g.Expect(md.Status.AvailableReplicas).To(HaveValue(BeEquivalentTo(2)))
			g.Expect(names(ctx, c)).To(And(HaveLen(2), ContainElement(before[1]), Not(ContainElement(before[0]))))
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })

		By("deleting the other")
		gone, err = machine(ctx, c, before[1])
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Client.Delete(ctx, gone)).To(Succeed())
		Eventually(names).WithContext(ctx).WithArguments(c).WithTimeout(deleteTimeout).ShouldNot(ContainElement(before[1]))
		awaitHealthy(ctx, c, changeTimeout)
	})

	It("are replaced when a user requests a rollout without a change", func(ctx context.Context) {
		before := namesNow(ctx, c)
		change(ctx, c, func(md *clusterv1.MachineDeployment) {
			md.Spec.Rollout.Strategy = surge(2, 0)
			md.Spec.Rollout.After = now()
		})
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(b.CheckCluster(ctx, *c)).To(Succeed())
			g.Expect(names(ctx, c)).NotTo(ContainElement(BeElementOf(before)))
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
	})
}
