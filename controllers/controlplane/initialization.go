package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/collections"

	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// initialization records that kubeadm init has succeeded. After that no machine
// initializes the cluster again, and Cluster API relies on the API server.
func (r *observer) initialization(ctx context.Context, s *scope) error {
	if done := s.controlPlane.Status.Initialization.ControlPlaneInitialized; done != nil && *done {
		return nil
	}
	if !initializedNow(s) {
		return nil
	}
	if err := initlock.MarkInitialized(ctx, r.Client, s.cluster); err != nil {
		return fmt.Errorf("recording initialization: %w", err)
	}
	if !s.initialized {
		r.event(s, corev1.EventTypeNormal, "Initialized", "Initialization", "The control plane is initialized")
	}
	s.initialized = true
	s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	return nil
}

// initializedNow reports whether the workload cluster is initialized. A
// recorded initialization stays valid, also after a move to another management
// cluster. While every machine is being deleted, the answer of the workload
// cluster does not count: its data is deleted with them, and the next machine
// must initialize it again.
func initializedNow(s *scope) bool {
	if s.initialized {
		return true
	}
	staying := s.machines.Filter(collections.Not(collections.HasDeletionTimestamp))
	return s.workload.Answers && s.workload.KubeadmConfig && len(staying) > 0
}
