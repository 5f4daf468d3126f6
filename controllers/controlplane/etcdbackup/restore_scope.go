package etcdbackup

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// restoreScope is the state of one reconcile.
type restoreScope struct {
	restore      *controlplanev1.NovaEtcdRestore
	controlPlane *controlplanev1.NovaControlPlane
	cluster      *clusterv1.Cluster
	now          time.Time
	// paused is the paused object because of which the restore waits.
	paused string
	// fenced is the reason why another management cluster acts, if there is
	// one.
	fenced error

	// secret configures the snapshot for the machine; nil until it is prepared.
	secret *corev1.Secret
	// formerSecret is true while the Secret of a deleted restore with the same name
	// exists.
	formerSecret bool
	// lock is the restore in progress.
	lock initlock.Restore
	// machines are the machines of the control plane.
	machines []clusterv1.Machine
	// answers is true if the API server of the workload cluster answered.
	answers bool

	phase   controlplanev1.EtcdRestorePhase
	reason  string
	message string
}

func (s *restoreScope) key() client.ObjectKey { return client.ObjectKeyFromObject(s.cluster) }

// setPhasef sets the phase of the restore and the message of its condition.
func (s *restoreScope) setPhasef(phase controlplanev1.EtcdRestorePhase, format string, args ...any) {
	s.phase, s.message = phase, fmt.Sprintf(format, args...)
}

// pausedBy returns the paused object that blocks the restore; empty if there is
// none.
func (s *restoreScope) pausedBy() string {
	switch {
	case s.cluster == nil:
		return ""
	case annotations.IsPaused(s.cluster, s.cluster):
		return "Cluster " + s.cluster.Name
	case annotations.HasPaused(s.controlPlane):
		return "NovaControlPlane " + s.controlPlane.Name
	case annotations.HasPaused(s.restore):
		return "this restore"
	default:
		return ""
	}
}

// s3 returns the settings of the bucket.
func (s *restoreScope) s3() *controlplanev1.S3Spec {
	if s.restore.Spec.S3.Bucket != "" {
		return &s.restore.Spec.S3
	}
	return &s.controlPlane.Spec.Etcd.Snapshots.S3
}

// newSecret returns the Secret that configures the restore.
func (s *restoreScope) newSecret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.restore.Namespace, Name: s.restore.Name,
			Labels:          map[string]string{clusterv1.ClusterNameLabel: s.cluster.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.restore, controlplanev1.GroupVersion.WithKind("NovaEtcdRestore"))},
		},
		Type: controlplanev1.EtcdRestoreSecretType,
		Data: data,
	}
}

// restorer returns the machine that restores, nil until there is one, and the
// names of the others that have to be deleted first.
func (s *restoreScope) restorer() (machine *clusterv1.Machine, others []string) {
	for i := range s.machines {
		if s.machines[i].Name == s.lock.Machine {
			machine = &s.machines[i]
			continue
		}
		if s.isFenced(&s.machines[i]) {
			continue
		}
		others = append(others, s.machines[i].Name)
	}
	slices.Sort(others)
	return machine, others
}

// refusedError ends a restore that cannot be carried out. Nothing was changed.
type refusedError struct{ why string }

func refuse(format string, args ...any) error {
	return &refusedError{why: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (e *refusedError) Error() string { return e.why }

// external reports whether the control plane uses an external etcd.
func (s *restoreScope) external() bool { return s.controlPlane.Spec.Etcd.External.IsDefined() }
