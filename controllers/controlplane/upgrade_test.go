package controlplane

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/upgrade"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// runSole makes the machine of a control plane of one a ready node, and returns the
// workload cluster.
func (r *rig) runSole(ctx context.Context, version string) (*fakeClusters, *Reconciler) {
	GinkgoHelper()
	workloadCluster := &fakeClusters{}
	reconciler := direct(testEnv.Config, workloadCluster)
	r.reconcileUntilIdle(ctx, reconciler)
	first := r.expectMachines(ctx, 1)[0]
	first.Status.NodeRef.Name = first.Name
	Expect(testEnv.Client.Status().Update(ctx, &first)).To(Succeed())
	workloadCluster.Cluster = facts.Cluster{
		Answers: true, KubeadmConfig: true, KubeadmVersion: version,
		Nodes: []facts.Node{{Name: first.Name, Machine: first.Name, ControlPlane: true, Ready: true, APIServer: version}},
		Etcd:  &etcd.Health{Members: []etcd.Member{{ID: 1, Name: first.Name, Answers: true, Leader: true}}},
	}
	r.reconcileUntilIdle(ctx, reconciler)
	return workloadCluster, reconciler
}

var _ = Describe("An upgrade that waits for a snapshot", func() {
	It("begins once a snapshot is stored that is newer than the request", func(ctx context.Context) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Replicas = ptr.To(int32(1))
			c.Spec.Version = "v1.35.4"
			c.Spec.Etcd.Snapshots = controlplanev1.EtcdSnapshotsSpec{
				Schedule: "@daily", BeforeUpgrade: ptr.To(true),
				S3: controlplanev1.S3Spec{Endpoint: "https://s3.example.org", Bucket: "bucket", CredentialsSecretRef: bootstrapv1.SecretReference{Name: "bucket"}},
			}
		})
		workloadCluster, reconciler := r.runSole(ctx, "v1.35.4")

		By("changing the version")
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.36.3" })
		r.reconcileTimes(ctx, reconciler, 4)
		controlPlane, err := r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(controlPlane.Annotations).To(HaveKeyWithValue(controlplanev1.EtcdSnapshotAnnotation, "v1.36.3"), "a snapshot is requested")
		requested, ok := upgrade.SnapshotRequested(controlPlane)
		Expect(ok).To(BeTrue())
		Expect(workloadCluster.upgrades).NotTo(ContainElement(HaveField("Version", "v1.36.3")))
		r.expectMachines(ctx, 1)
		rolling, err := r.condition(ctx, controlplanev1.RollingOutCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(rolling).To(And(HaveField("Reason", controlplanev1.RollingOutWaitingForSnapshotReason), HaveField("Message", ContainSubstring("waits for a snapshot of etcd"))))

		By("the snapshot failing")
		conditions.Set(controlPlane, metav1.Condition{
			Type: controlplanev1.EtcdSnapshotsHealthyCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.EtcdSnapshotFailedReason, Message: "the bucket is full",
		})
		Expect(testEnv.Client.Status().Update(ctx, controlPlane)).To(Succeed())
		r.reconcileTimes(ctx, reconciler, 3)
		Expect(workloadCluster.upgrades).NotTo(ContainElement(HaveField("Version", "v1.36.3")))
		rolling, err = r.condition(ctx, controlplanev1.RollingOutCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(rolling.Message).To(ContainSubstring("the bucket is full"))

		By("the snapshot being stored")
		controlPlane, err = r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		at, _ := upgrade.SnapshotRequested(controlPlane)
		Expect(at).To(Equal(requested), "the request is not repeated")
		controlPlane.Status.Etcd.LastSnapshot = controlplanev1.EtcdSnapshotStatus{Name: "s", Time: metav1.NewTime(requested), Size: 1, Revision: 1}
		conditions.Set(controlPlane, metav1.Condition{Type: controlplanev1.EtcdSnapshotsHealthyCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.EtcdSnapshotTakenReason})
		Expect(testEnv.Client.Status().Update(ctx, controlPlane)).To(Succeed())
		r.reconcileTimes(ctx, reconciler, 2)
		Expect(workloadCluster.upgrades).To(ContainElement(HaveField("Version", "v1.36.3")))
		workloadCluster.KubeadmVersion = "v1.36.3"
		r.reconcileTimes(ctx, reconciler, 2)
		controlPlane, err = r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(controlPlane.Annotations).NotTo(HaveKey(controlplanev1.UpgradeSnapshotAnnotation))
	})
})
