package etcdbackup

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

func (r *RestoreReconciler) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

// annotate stores the restore's annotations immediately.
func (r *RestoreReconciler) annotate(ctx context.Context, s *restoreScope) error {
	live := &controlplanev1.NovaEtcdRestore{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(s.restore), live); err != nil {
		return fmt.Errorf("reading restore: %w", err)
	}
	changed := live.DeepCopy()
	changed.Annotations = s.restore.Annotations
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(live)); err != nil {
		return fmt.Errorf("recording that etcd is restored: %w", err)
	}
	return nil
}

// with returns annotations with an additional one.
func with(annotations map[string]string, key, value string) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	return annotations
}

// join waits for the further machines, which the control plane's reconciler
// creates as usual.
func (r *RestoreReconciler) join(ctx context.Context, s *restoreScope) (time.Duration, error) {
	// The previous reconcile may have been interrupted right before this.
	if err := initlock.EndRestore(ctx, r.Client, s.cluster, s.restore.Name); err != nil {
		return 0, err
	}
	if machine := s.restore.Annotations[controlplanev1.EtcdRestoredAnnotation]; machine != "" {
		s.restore.Status.Machine = machine
	}
	// Replacing the object removes the annotation, and a move drops the status.
	s.restore.Annotations = with(s.restore.Annotations, controlplanev1.EtcdRestoredAnnotation, s.restore.Status.Machine)
	want, ready := s.controlPlane.GetReplicas(), int32(0)
	for i := range s.machines {
		if conditions.IsTrue(&s.machines[i], clusterv1.MachineReadyCondition) && s.machines[i].DeletionTimestamp.IsZero() {
			ready++
		}
	}
	if ready < want || !conditions.IsTrue(s.controlPlane, controlplanev1.EtcdClusterHealthyCondition) ||
		!conditions.IsTrue(s.controlPlane, controlplanev1.AvailableCondition) {
		s.setPhasef(controlplanev1.EtcdRestoreJoining, "Waiting for further control plane machines to join: %d of %d are ready", ready, want)
		return timelimits.ShortPoll, nil
	}
	if err := r.requestSnapshot(ctx, s); err != nil {
		return 0, err
	}
	s.restore.Annotations = with(s.restore.Annotations, controlplanev1.EtcdRestoreFinishedAnnotation, string(controlplanev1.EtcdRestoreSucceeded))
	r.Recorder.Eventf(s.restore, nil, corev1.EventTypeNormal, "Succeeded", "Restore", "The control plane has all its machines again")
	return 0, r.finish(ctx, s)
}

// requestSnapshot requests a snapshot of the restored data: the newest one in the bucket
// may contain unwanted data or belong to another control plane, and then the
// schedule waits for a user to decide. The restore is that decision.
func (r *RestoreReconciler) requestSnapshot(ctx context.Context, s *restoreScope) error {
	if !s.controlPlane.Spec.Etcd.Snapshots.IsDefined() {
		return nil
	}
	changed := s.controlPlane.DeepCopy()
	changed.Annotations = with(changed.Annotations, controlplanev1.EtcdSnapshotAnnotation, s.restore.Name)
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(s.controlPlane)); err != nil {
		return fmt.Errorf("requesting snapshot of the restored data: %w", err)
	}
	return nil
}

// finish reports the result of a completed restore, also after a move, and
// deletes its Secret.
func (r *RestoreReconciler) finish(ctx context.Context, s *restoreScope) error {
	s.setPhasef(s.restore.Finished(), "")
	// Replacing the object removes the annotation, and a move drops the status.
	s.restore.Annotations = with(s.restore.Annotations, controlplanev1.EtcdRestoreFinishedAnnotation, string(s.phase))
	switch s.phase {
	case controlplanev1.EtcdRestoreSucceeded:
		s.reason = controlplanev1.EtcdRestoreSucceededReason
	default:
		s.reason, s.message = controlplanev1.EtcdRestoreRefusedReason, "The restore could not be carried out"
		if was := conditions.Get(s.restore, controlplanev1.EtcdRestoreReadyCondition); was != nil && was.Reason == s.reason {
			s.message = was.Message
		}
	}
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(s.restore), secret)
	if err == nil && secret.Type == controlplanev1.EtcdRestoreSecretType && metav1.IsControlledBy(secret, s.restore) {
		err = r.Client.Delete(ctx, secret)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Secret of restore: %w", err)
	}
	return nil
}
