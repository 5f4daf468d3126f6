package etcdbackup

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// id identifies the restore, also after a move and in a management cluster that
// was restored from a backup.
func (s *restoreScope) id() string {
	return cmp.Or(s.restore.Annotations[controlplanev1.EtcdRestoreIDAnnotation], string(s.restore.UID))
}

// carriedOut reports whether the workload cluster records that the restore was
// carried out although the management cluster does not: the management cluster
// was restored from an older backup. The restore then counts as completed.
// No request is made once the machine that restores is a node. An old snapshot
// cannot contain the record of this restore, because the record is written
// later.
func (r *RestoreReconciler) carriedOut(ctx context.Context, s *restoreScope) (bool, error) {
	if machine, _ := s.restorer(); machine != nil && machine.Status.NodeRef.IsDefined() {
		return false, nil
	}
	records, err := r.records(ctx, s)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(4).Info("Reading which restores were carried out failed", "error", err.Error())
		return false, nil
	}
	found, err := readRecords(ctx, records)
	if err != nil {
		// The API server is usually down when etcd has to be restored.
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
	// This is stored first, because the control plane's reconciler reads it.
	if err := r.annotate(ctx, s); err != nil {
		return false, err
	}
	r.Recorder.Eventf(s.restore, nil, corev1.EventTypeWarning, controlplanev1.RestoreAlreadyDoneEventReason, "Restore",
		"The restore was carried out before by machine %s, as recorded in ConfigMap %s/%s of the workload cluster, and is not carried out again",
		machine, metav1.NamespaceSystem, controlplanev1.EtcdRestoresConfigMap)
	_, err = r.join(ctx, s)
	return true, err
}

// readRecords reads the record of restores that were carried out.
func readRecords(ctx context.Context, records corev1client.ConfigMapInterface) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, timelimits.CallTimeout)
	defer cancel()
	return records.Get(ctx, controlplanev1.EtcdRestoresConfigMap, metav1.GetOptions{})
}

// record records in the workload cluster that the restore was carried out. The
// restored data lacks the records of restores after the snapshot, so all known
// records are written again.
func (r *RestoreReconciler) record(ctx context.Context, s *restoreScope, machine string) error {
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
	records, err := r.records(ctx, s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timelimits.CallTimeout)
	defer cancel()
	found, err := records.Get(ctx, controlplanev1.EtcdRestoresConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = records.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: controlplanev1.EtcdRestoresConfigMap}, Data: done}, metav1.CreateOptions{})
	} else if err == nil {
		for id, by := range done {
			found.Data = with(found.Data, id, by)
		}
		_, err = records.Update(ctx, found, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("recording the restore in the workload cluster: %w", err)
	}
	return nil
}

// records returns a client of the ConfigMaps of kube-system in the workload
// cluster.
func (r *RestoreReconciler) records(ctx context.Context, s *restoreScope) (corev1client.ConfigMapInterface, error) {
	config, err := r.WorkloadClusters.config(ctx, s.key())
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reaching API server: %w", err)
	}
	return core.ConfigMaps(metav1.NamespaceSystem), nil
}
