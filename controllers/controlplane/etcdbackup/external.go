package etcdbackup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// checkSource refuses a source that does not match the kind of etcd. The
// validation rules of the API cannot compare the restore with its control
// plane.
func (s *restoreScope) checkSource() error {
	switch requested := s.restore.Spec.Source.ExternalEtcd != nil; {
	case s.external() && !requested:
		return refuse("etcd of NovaControlPlane %s is external, its data is restored where it runs. To initialize the control plane again with the data "+
			"that it holds, create a NovaEtcdRestore with source.externalEtcd", s.controlPlane.Name)
	case !s.external() && requested:
		return refuse("etcd of NovaControlPlane %s runs on its machines, so there is no external etcd: name a snapshot or a machine as the source", s.controlPlane.Name)
	}
	return nil
}

// prepareExternal starts a new initialization of the control plane with the
// data of external etcd, unless its API server answers: then no data is lost,
// and the Machines that do not work can be deleted one by one.
func (r *RestoreReconciler) prepareExternal(ctx context.Context, s *restoreScope) error {
	if s.secret != nil {
		return nil
	}
	if s.answers && s.lock.Name != s.restore.Name {
		return refuse("The API server of Cluster %s answers: delete the Machines that do not work, they are replaced one by one", s.cluster.Name)
	}
	wanted := s.newSecret(nil)
	if err := r.Client.Create(ctx, wanted); err != nil {
		return fmt.Errorf("noting that the control plane is initialized again: %w", err)
	}
	r.Recorder.Eventf(s.restore, nil, corev1.EventTypeNormal, "Prepared", "Prepare", "The control plane will be initialized with the data of external etcd")
	s.secret = wanted
	return nil
}
