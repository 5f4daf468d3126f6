package etcdbackup

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
)

var _ = Describe("A restored copy of a management cluster", func() {
	const original, restored = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

	// record sets the record of the original on the control plane, as
	// nova-control-plane does.
	record := func(ctx context.Context, r *rig, change func(*controlplanev1.NovaControlPlane)) {
		GinkgoHelper()
		cp := r.controlPlane(ctx)
		Expect(fence.For(original).Record(cp)).To(BeTrue())
		change(cp)
		Expect(testEnv.Client.Update(ctx, cp)).To(Succeed())
	}
	takeOver := func(ctx context.Context, r *rig) {
		GinkgoHelper()
		cluster := r.cluster(ctx)
		before := cluster.DeepCopy()
		metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, fence.TakeOverAnnotation, restored)
		Expect(testEnv.Client.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
	}

	It("takes and deletes no snapshot, until it takes over", func(ctx context.Context) {
		r := newRig(ctx, nil)
		for range 2 {
			r.taken(ctx)
			r.now = r.now.Add(7 * time.Hour)
		}
		before := r.objects()
		Expect(before).To(HaveLen(4))
		// A snapshot is due and requested, and an old one is to be deleted.
		record(ctx, r, func(cp *controlplanev1.NovaControlPlane) {
			metav1.SetMetaDataAnnotation(&cp.ObjectMeta, controlplanev1.EtcdSnapshotAnnotation, "")
			cp.Spec.Etcd.Snapshots.Retention.Count = 1
		})
		copied := &SnapshotReconciler{
			Client: testEnv.Client, WorkloadClusters: r.clusters, Recorder: r.recorder, Fence: fence.For(restored), Now: func() time.Time { return r.now },
		}
		request := ctrl.Request{NamespacedName: r.key(clusterName)}
		result, err := copied.Reconcile(ctx, request)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).NotTo(BeZero())
		Expect(r.objects()).To(Equal(before))
		Expect(r.controlPlane(ctx).Annotations).To(HaveKey(controlplanev1.EtcdSnapshotAnnotation))

		takeOver(ctx, r)
		_, err = copied.Reconcile(ctx, request)
		Expect(err).NotTo(HaveOccurred())
		Expect(r.objects()).To(HaveLen(2))
		Expect(before).NotTo(ContainElements(r.objects()))
	})

	It("begins no restore, until it takes over", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.taken(ctx)
		record(ctx, r, func(*controlplanev1.NovaControlPlane) {})
		r.addRestore(ctx, "back", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		copied := &RestoreReconciler{
			Client: testEnv.Client, WorkloadClusters: r.clusters, Recorder: r.recorder, Fence: fence.For(restored), Now: func() time.Time { return r.now },
		}
		reconciled := func() *controlplanev1.NovaEtcdRestore {
			GinkgoHelper()
			_, err := copied.Reconcile(ctx, ctrl.Request{NamespacedName: r.key("back")})
			Expect(err).NotTo(HaveOccurred())
			restore := &controlplanev1.NovaEtcdRestore{}
			Expect(testEnv.Client.Get(ctx, r.key("back"), restore)).To(Succeed())
			return restore
		}
		restore := reconciled()
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestorePending))
		Expect(conditions.GetMessage(restore, controlplanev1.EtcdRestoreReadyCondition)).To(ContainSubstring(fence.TakeOverAnnotation + "=" + restored))
		Expect(apierrors.IsNotFound(testEnv.Client.Get(ctx, r.key("back"), &corev1.Secret{}))).To(BeTrue(), "a Secret has the URL of the snapshot")

		takeOver(ctx, r)
		Expect(reconciled().Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
	})
})
