package etcd

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// latest is the newest snapshot in the bucket.
var latest = controlplanev1.NovaEtcdRestoreSource{Snapshot: controlplanev1.NovaEtcdRestoreSnapshot{Name: controlplanev1.LatestEtcdSnapshot}}

var _ = Describe("A control plane of one machine", Ordered, func() {
	c := cluster("one", 10)

	It("reports an alarm of etcd that makes its API server unreachable", func(ctx context.Context) {
		create(ctx, c)
		awaitWhole(ctx, c, bootTimeout)
		alarm(ctx, c, "ACTIVATE")
		Eventually(func(g Gomega, ctx context.Context) {
			cp, err := controlPlane(ctx, c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(conditions.IsFalse(cp, controlplanev1.AvailableCondition)).To(BeTrue(), "kube-vip has released the address")
			g.Expect(conditions.IsFalse(cp, controlplanev1.EtcdClusterHealthyCondition)).To(BeTrue())
			g.Expect(conditions.GetMessage(cp, controlplanev1.EtcdClusterHealthyCondition)).To(ContainSubstring("NOSPACE"))
		}).WithContext(ctx).WithTimeout(2*time.Minute).Should(Succeed(), func() string { return describe(ctx, c) })
		alarm(ctx, c, "DEACTIVATE")
		awaitWhole(ctx, c, bootTimeout)
	})

	It("comes back from a snapshot after its machine is lost", func(ctx context.Context) {
		write(ctx, c, "before")
		taken := snapshot(ctx, c)
		AddReportEntry("snapshot", taken)
		Expect(store.Objects()).To(ContainElements("bed/one/one/"+taken.Name+".db", "bed/one/one/"+taken.Name+".json"))
		write(ctx, c, "after")
		lost := machines(ctx, c)
		lose(ctx, lost...)

		r := restore(ctx, c, latest)
		awaitRestored(ctx, c, r)
		awaitWhole(ctx, c, bootTimeout)
		Expect(r.Status.Snapshot.Name).To(Equal(taken.Name))
		Expect(r.Status.Machine).NotTo(Equal(lost[0].Name))
		Expect(written(ctx, c, "before")).To(BeTrue())
		Expect(written(ctx, c, "after")).To(BeFalse(), "later writes than the snapshot are lost")
		deleteCluster(ctx, c)
	})
})

// The commands of docs/etcd.md for a survivor whose etcd was restarted. The
// kubelet takes any file in that folder for a manifest, so it is changed
// elsewhere.
const (
	manifest        = "/etc/kubernetes/manifests/etcd.yaml"
	forceNewCluster = "sed 's/^    - etcd$/&\\n    - --force-new-cluster/' " + manifest + " >/etc/kubernetes/etcd.yaml && cp /etc/kubernetes/etcd.yaml " + manifest
	endNewCluster   = "sed '/--force-new-cluster/d' " + manifest + " >/etc/kubernetes/etcd.yaml && cp /etc/kubernetes/etcd.yaml " + manifest
)

// describeFull describes specs that take long.
func describeFull(text string, body func()) bool {
	if !everything {
		return false
	}
	return Describe(text, Ordered, body)
}

var _ = describeFull("A control plane of three machines and a worker", func() {
	c := cluster("three", 11)
	c.ControlPlanes, c.Workers = 3, 1

	It("comes back from a snapshot after all control plane machines are lost", func(ctx context.Context) {
		create(ctx, c)
		awaitWhole(ctx, c, bootTimeout)
		write(ctx, c, "before")
		AddReportEntry("snapshot", snapshot(ctx, c))
		write(ctx, c, "after")
		lose(ctx, machines(ctx, c)...)
		awaitRestored(ctx, c, restore(ctx, c, latest))
		awaitWhole(ctx, c, bootTimeout)
		Expect(written(ctx, c, "before")).To(BeTrue())
		Expect(written(ctx, c, "after")).To(BeFalse())
		By("the worker's kubelet continues without a change")
		write(ctx, c, "later")
	})

	It("continues manually from a surviving member whose etcd was restarted", func(ctx context.Context) {
		write(ctx, c, "survives")
		all := machines(ctx, c)
		survivor := all[0].Name
		lose(ctx, all[1:]...)
		on := func(command string) (string, error) { return b.Exec(ctx, survivor, "sh", "-c", command) }
		Eventually(func() (string, error) { return on("pkill -x etcd") }).WithTimeout(reportTimeout).Should(BeEmpty())
		By("requesting a restore from it, which reports that it does not respond")
		r := restore(ctx, c, controlplanev1.NovaEtcdRestoreSource{Machine: controlplanev1.NovaEtcdRestoreMachine{Name: survivor}})
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(r), r)).To(Succeed())
			g.Expect(conditions.GetMessage(r, controlplanev1.EtcdRestoreReadyCondition)).To(ContainSubstring("does not answer"))
		}).WithContext(ctx).WithTimeout(3*time.Minute).Should(Succeed(), func() string { return describe(ctx, c) })
		Expect(b.Client.Delete(ctx, r)).To(Succeed())
		By("making it a cluster of one, with the commands of docs/etcd.md")
		Expect(on(forceNewCluster)).Error().NotTo(HaveOccurred())
		Eventually(func() (string, error) {
			return on("kubectl --kubeconfig /etc/kubernetes/admin.conf --request-timeout 5s get nodes")
		}).
			WithTimeout(bootTimeout).Should(ContainSubstring(survivor), func() string { return describe(ctx, c) })
		Expect(on(endNewCluster)).Error().NotTo(HaveOccurred())
		By("deleting the machines of lost hosts")
		for i := range all[1:] {
			Expect(b.Client.Delete(ctx, &all[1+i])).To(Succeed())
		}
		Eventually(func(g Gomega, ctx context.Context) {
			now := machines(ctx, c)
			g.Expect(now).To(ContainElement(HaveField("Name", survivor)))
			for _, lost := range all[1:] {
				g.Expect(now).NotTo(ContainElement(HaveField("Name", lost.Name)))
			}
		}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
		awaitWhole(ctx, c, bootTimeout)
		Expect(written(ctx, c, "survives")).To(BeTrue())
	})

	It("comes back from one surviving member with all that it knew", func(ctx context.Context) {
		write(ctx, c, "last")
		all := machines(ctx, c)
		Expect(all).To(HaveLen(3))
		survivor := all[0].Name
		lose(ctx, all[1:]...)
		Eventually(func(g Gomega, ctx context.Context) {
			cp, err := controlPlane(ctx, c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(conditions.IsTrue(cp, controlplanev1.AvailableCondition)).To(BeFalse())
		}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
		r := restore(ctx, c, controlplanev1.NovaEtcdRestoreSource{Machine: controlplanev1.NovaEtcdRestoreMachine{Name: survivor}})
		awaitRestored(ctx, c, r)
		awaitWhole(ctx, c, bootTimeout)
		Expect(written(ctx, c, "last")).To(BeTrue())
		Expect(machines(ctx, c)).NotTo(ContainElement(HaveField("Name", survivor)), "it gave its data and went")
	})

	It("rejects restores that would only do harm", func(ctx context.Context) {
		alive := machines(ctx, c)[0].Name
		for source, want := range map[controlplanev1.NovaEtcdRestoreSource]string{
			{Machine: controlplanev1.NovaEtcdRestoreMachine{Name: alive}}:                "its quorum is not lost",
			{Machine: controlplanev1.NovaEtcdRestoreMachine{Name: "unknown"}}:            "no control plane Machine unknown",
			{Snapshot: controlplanev1.NovaEtcdRestoreSnapshot{Name: "20200101t000000z"}}: "no snapshot 20200101t000000z",
		} {
			r := restore(ctx, c, source)
			Eventually(func(g Gomega, ctx context.Context) {
				g.Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(r), r)).To(Succeed())
				g.Expect(r.Status.Phase).To(Equal(controlplanev1.EtcdRestoreFailed))
				g.Expect(conditions.GetMessage(r, controlplanev1.EtcdRestoreReadyCondition)).To(ContainSubstring(want))
			}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
		}
		for _, machine := range machines(ctx, c) {
			Expect(machine.DeletionTimestamp.IsZero()).To(BeTrue(), machine.Name)
			Expect(machine.Annotations).NotTo(HaveKey(clusterv1.ExcludeNodeDrainingAnnotation))
		}
		deleteCluster(ctx, c)
	})
})
