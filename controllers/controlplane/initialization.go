package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/collections"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// initialization records that kubeadm init has succeeded. After that no machine
// initializes the cluster again, and Cluster API relies on the API server.
func (r *observer) initialization(ctx context.Context, s *scope.Scope) error {
	if done := s.ControlPlane.Status.Initialization.ControlPlaneInitialized; done != nil && *done {
		return nil
	}
	if !initializedNow(s) {
		return nil
	}
	if err := initlock.MarkInitialized(ctx, r.Client, s.Cluster); err != nil {
		return fmt.Errorf("recording initialization: %w", err)
	}
	if !s.Initialized {
		r.Event(s, corev1.EventTypeNormal, "Initialized", "Initialization", "The control plane is initialized")
	}
	s.Initialized, s.InitializationRecorded = true, true
	return nil
}

// initializedNow reports whether the workload cluster is initialized. A
// recorded initialization stays valid, also after a move to another management
// cluster. While every machine is being deleted, the answer of the workload
// cluster does not count: its data is deleted with them, and the next machine
// must initialize it again.
func initializedNow(s *scope.Scope) bool {
	if s.Initialized {
		return true
	}
	staying := s.Machines.Filter(collections.Not(collections.HasDeletionTimestamp))
	return s.Workload.Answers && s.Workload.KubeadmConfig && len(staying) > 0
}
