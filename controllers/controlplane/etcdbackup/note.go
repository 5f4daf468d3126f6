package etcdbackup

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// noteTimeout bounds a request to a workload cluster that may be down.
const noteTimeout = 5 * time.Second

// id identifies the restore, also after a move and in a management cluster that
// was restored from a backup.
func (s *restoreScope) id() string {
	return cmp.Or(s.restore.Annotations[controlplanev1.EtcdRestoreIDAnnotation], string(s.restore.UID))
}

// carriedOut reports whether the workload cluster notes that the restore was
// carried out, which the management cluster has forgotten: it was restored from
// a backup that is older. The restore then goes on as one that is done.
//
// Nothing is asked once the machine that restores is a node. An old snapshot
// cannot bring the note of this restore, because the note is written later.
func (r *RestoreReconciler) carriedOut(ctx context.Context, s *restoreScope) (bool, error) {
	if machine, _ := s.restorer(); machine != nil && machine.Status.NodeRef.IsDefined() {
		return false, nil
	}
	notes, err := r.notes(ctx, s)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(4).Info("Reading which restores were carried out failed", "error", err.Error())
		return false, nil
	}
	found, err := readNotes(ctx, notes)
	if err != nil {
		// That the API server is down is why there is a restore.
		ctrl.LoggerFrom(ctx).V(4).Info("Reading which restores were carried out failed", "error", err.Error())
		s.answers = apierrors.IsNotFound(err)
		return false, nil
	}
	s.answers = true
	machine, done := found.Data[s.id()]
	if !done {
		return false, nil
	}
	if len(validation.IsDNS1123Subdomain(machine)) > 0 {
		// An administrator of the workload cluster can write anything there.
		machine = ""
	}
	s.restore.Annotations = with(s.restore.Annotations, controlplanev1.EtcdRestoredAnnotation, machine)
	// First here: the reconciler of the control plane goes by it.
	if err := r.annotate(ctx, s); err != nil {
		return false, err
	}
	r.Recorder.Eventf(s.restore, nil, corev1.EventTypeWarning, "RestoreAlreadyDone", "Restore",
		"The restore was carried out before by machine %s, as ConfigMap %s/%s of the workload cluster says, and is not carried out again",
		machine, metav1.NamespaceSystem, controlplanev1.EtcdRestoresConfigMap)
	_, err = r.join(ctx, s)
	return true, err
}

// readNotes reads which restores were carried out.
func readNotes(ctx context.Context, notes corev1client.ConfigMapInterface) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	return notes.Get(ctx, controlplanev1.EtcdRestoresConfigMap, metav1.GetOptions{})
}

// note writes into the workload cluster that the restore was carried out. The
// data that was restored does not have the notes of restores that were carried
// out after the snapshot, so those that are known are written again.
func (r *RestoreReconciler) note(ctx context.Context, s *restoreScope, machine string) error {
	list := &controlplanev1.NovaEtcdRestoreList{}
	if err := r.Client.List(ctx, list, client.InNamespace(s.restore.Namespace)); err != nil {
		return fmt.Errorf("listing restores: %w", err)
	}
	done := map[string]string{s.id(): machine}
	for i := range list.Items {
		of := &list.Items[i]
		if id := of.Annotations[controlplanev1.EtcdRestoreIDAnnotation]; id != "" && of.Spec.ControlPlaneRef == s.restore.Spec.ControlPlaneRef && of.Restored() {
			done[id] = of.Annotations[controlplanev1.EtcdRestoredAnnotation]
		}
	}
	notes, err := r.notes(ctx, s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	found, err := notes.Get(ctx, controlplanev1.EtcdRestoresConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = notes.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: controlplanev1.EtcdRestoresConfigMap}, Data: done}, metav1.CreateOptions{})
	} else if err == nil {
		for id, by := range done {
			found.Data = with(found.Data, id, by)
		}
		_, err = notes.Update(ctx, found, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("noting the restore in the workload cluster: %w", err)
	}
	return nil
}

// notes reaches the ConfigMaps of kube-system in the workload cluster.
func (r *RestoreReconciler) notes(ctx context.Context, s *restoreScope) (corev1client.ConfigMapInterface, error) {
	config, err := r.Tenants.config(ctx, s.key())
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reaching API server: %w", err)
	}
	return core.ConfigMaps(metav1.NamespaceSystem), nil
}
