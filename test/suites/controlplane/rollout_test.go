package controlplane

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
)

// setMark changes the NovaConfig of a control plane.
func setMark(cp *controlplanev1.NovaControlPlane, mark string) {
	file := bootstrapv1.File{Path: "/etc/mark", Content: mark + "\n"}
	for i := range cp.Spec.Config.Files {
		if cp.Spec.Config.Files[i].Path == file.Path {
			cp.Spec.Config.Files[i] = file
			return
		}
	}
	cp.Spec.Config.Files = append(cp.Spec.Config.Files, file)
}

// expectMark looks for the change on every control plane host.
func expectMark(ctx context.Context, c *bed.Cluster, mark string) {
	GinkgoHelper()
	for _, name := range names(ctx, c) {
		Expect(b.Exec(ctx, name, "cat", "/etc/mark")).To(Equal(mark), name)
	}
}

var _ = describeFull("A control plane that is rolled out", func() {
	c, p := cluster("rolled", 23, 3, 0), &promises{}

	BeforeAll(func(ctx context.Context) {
		create(ctx, c)
	})

	// rollOut changes the NovaConfig and counts how many machines there are.
	rollOut := func(ctx context.Context, mark string, surge int32, atLeast, atMost int) {
		GinkgoHelper()
		before, started := names(ctx, c), time.Now()
		watch := watchCount(ctx, c)
		seen := probing(ctx, c, func() {
			keepingQuorum(ctx, c, func() {
				change(ctx, c, func(cp *controlplanev1.NovaControlPlane) {
					cp.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(surge)
					setMark(cp, mark)
				})
				replaced(ctx, c, before...)
			})
		})
		fewest, most := watch()
		p.withinf(plannedLoss, seen.Longest().Length, "rollout of three with maxSurge %d: %.0f s, API: %s", surge, time.Since(started).Seconds(), seen)
		Expect(fewest).To(BeNumerically(">=", atLeast), "machines that are not being deleted")
		Expect(most).To(BeNumerically("<=", atMost), "machines that are not being deleted")
		expectMark(ctx, c, mark)
	}

	It("gets the new machine first with maxSurge 1", func(ctx context.Context) {
		rollOut(ctx, "first", 1, 3, 4)
	})

	It("takes the old machine away first with maxSurge 0", func(ctx context.Context) {
		rollOut(ctx, "second", 0, 2, 3)
	})

	It("waits for the deletion of a machine with OnDelete, and reports the differences", func(ctx context.Context) {
		before := names(ctx, c)
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) {
			cp.Spec.Rollout.Strategy = controlplanev1.NovaControlPlaneRolloutStrategy{Type: controlplanev1.OnDeleteStrategy}
			setMark(cp, "third")
		})
		Eventually(func(g Gomega, ctx context.Context) {
			for _, machine := range machines(ctx, c) {
				g.Expect(conditions.IsFalse(&machine, clusterv1.MachineUpToDateCondition)).To(BeTrue())
				g.Expect(conditions.GetMessage(&machine, clusterv1.MachineUpToDateCondition)).To(ContainSubstring("files"))
			}
		}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), func() string { return story(ctx, c) })
		Consistently(func(ctx context.Context) []string { return names(ctx, c) }).
			WithContext(ctx).WithTimeout(10 * time.Second).Should(Equal(before))
		for _, name := range before {
			remove(ctx, c, name)
			Eventually(func(g Gomega, ctx context.Context) {
				all := names(ctx, c)
				g.Expect(all).To(HaveLen(3))
				g.Expect(all).NotTo(ContainElement(name))
				for _, machine := range machines(ctx, c) {
					g.Expect(machine.Status.NodeRef.IsDefined()).To(BeTrue())
				}
			}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
		}
		awaitHealthy(ctx, c, changeTimeout)
		expectMark(ctx, c, "third")
	})

	It("leaves nothing when it is deleted", func(ctx context.Context) {
		deleteCluster(ctx, c)
	})

	p.kept()
})

// watchCount counts the control plane machines that are not being deleted, and returns the minimum
// and the maximum.
func watchCount(ctx context.Context, c *bed.Cluster) func() (fewest, most int) {
	ctx, stop := context.WithCancel(ctx)
	done, fewest, most := make(chan struct{}), 99, 0
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			found, _, err := b.Machines(ctx, *c)
			if err == nil {
				count := 0
				for i := range found {
					if found[i].DeletionTimestamp.IsZero() {
						count++
					}
				}
				fewest, most = min(fewest, count), max(most, count)
			}
			timer := time.NewTimer(500 * time.Millisecond)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}()
	return func() (int, int) {
		stop()
		<-done
		return fewest, most
	}
}

var (
	_ = describeFull("A cluster that is upgraded by a minor version", func() {
		describeUpgrade(cluster("upgraded", 24, 3, 2), bed.OlderVersion, bed.KubernetesVersion, "v1.37.0", "v1.34.1")
	}, versions)
	_ = describeFull("A cluster that is upgraded to the newest minor version", func() {
		describeUpgrade(cluster("newest", 28, 3, 2), bed.KubernetesVersion, bed.NewerVersion, "v1.38.0", "v1.35.4")
	}, versions)
)

var _ = describeFull("A cluster of the newest minor version", func() {
	c := cluster("new", 29, 1, 1)
	c.Version = bed.NewerVersion

	It("comes up, with all that kubeadm keeps", func(ctx context.Context) {
		create(ctx, c)
		Eventually(func(g Gomega, ctx context.Context) { expectVersions(ctx, g, c) }).
			WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
		deleteCluster(ctx, c)
	})
}, versions)

// describeUpgrade moves a cluster from a version to the next one. The refused
// are versions that it cannot move to.
func describeUpgrade(c *bed.Cluster, from, to string, refused ...string) {
	p := &promises{}
	c.Version = from
	var work, api *prober.Prober

	It("comes up with the older version", func(ctx context.Context) {
		create(ctx, c)
		workload, err := b.DeployWorkload(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		endpoint, err := b.EndpointCheck(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		// They go on from spec to spec.
		work = prober.Start(context.WithoutCancel(ctx), 200*time.Millisecond, time.Second, workload.Check)
		api = prober.Start(context.WithoutCancel(ctx), 200*time.Millisecond, time.Second, endpoint)
	})

	It("refuses to skip a minor version or to go back", func(ctx context.Context) {
		for _, version := range refused {
			cp, err := b.ControlPlane(ctx, *c)
			Expect(err).NotTo(HaveOccurred())
			before := cp.DeepCopy()
			cp.Spec.Version = version
			Expect(b.Client.Patch(ctx, cp, client.MergeFrom(before), client.DryRunAll)).NotTo(Succeed(), version)
		}
	})

	It("moves the control plane, with the objects that kubeadm stores", func(ctx context.Context) {
		before, started := names(ctx, c), time.Now()
		template := newTemplate(ctx, c, "control-plane", to)
		c.Version = to
		keepingQuorum(ctx, c, func() {
			change(ctx, c, func(cp *controlplanev1.NovaControlPlane) {
				cp.Spec.Version = to
				cp.Spec.MachineTemplate.Spec.InfrastructureRef.Name = template
			})
			replaced(ctx, c, before...)
		})
		figuref("upgrade of three control planes: %.0f s", time.Since(started).Seconds())
		Eventually(func(g Gomega, ctx context.Context) { expectVersions(ctx, g, c) }).
			WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), func() string { return story(ctx, c) })
	})

	It("moves the workers, and the workload and the API kept answering", func(ctx context.Context) {
		started := time.Now()
		_, workers, err := b.Machines(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		template := newTemplate(ctx, c, "worker", to)
		md := &clusterv1.MachineDeployment{}
		Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, md)).To(Succeed())
		before := md.DeepCopy()
		md.Spec.Template.Spec.Version = to
		md.Spec.Template.Spec.InfrastructureRef.Name = template
		Expect(b.Client.Patch(ctx, md, client.MergeFrom(before))).To(Succeed())
		replaced(ctx, c, workers[0].Name, workers[1].Name)
		figuref("upgrade of two workers: %.0f s", time.Since(started).Seconds())
		workload, endpoint := work.Stop(), api.Stop()
		p.withinf(plannedLoss, workload.Longest().Length, "workload during the upgrade: %s", workload)
		p.withinf(plannedLoss, endpoint.Longest().Length, "API during the upgrade: %s", endpoint)
		if len(p.broken) > 0 {
			AddReportEntry("events of the workload cluster", tenantEvents(ctx, c))
		}
	})

	It("leaves nothing when it is deleted", func(ctx context.Context) {
		deleteCluster(ctx, c)
	})

	p.kept()
}

// newTemplate makes a machine template as the present one, from the VM template
// of a version.
func newTemplate(ctx context.Context, c *bed.Cluster, of, version string) string {
	GinkgoHelper()
	name := fmt.Sprintf("%s-%s-%s", c.Name, of, "next")
	Expect(b.CopyTemplate(ctx, *c, c.Name+"-"+of, name, bed.VersionTemplate(version))).To(Succeed())
	return name
}
