package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/collections"

	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// initialization notes that kubeadm init is through. From then on no machine
// initialises the cluster again, and Cluster API counts on the API server.
func (r *Reconciler) initialization(ctx context.Context, s *scope) error {
	if done := s.controlPlane.Status.Initialization.ControlPlaneInitialized; done != nil && *done {
		return nil
	}
	if !initializedNow(s) {
		return nil
	}
	if err := initlock.MarkInitialized(ctx, r.Client, s.cluster); err != nil {
		return fmt.Errorf("noting initialisation: %w", err)
	}
	if !s.initialized {
		r.event(s, corev1.EventTypeNormal, "Initialized", "Initialization", "The control plane is initialised")
	}
	s.initialized = true
	s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	return nil
}

// initializedNow reports whether the tenant is initialised. What was noted
// once holds, also after a move to another management cluster. While every
// machine is being deleted the tenant's word does not count: what was
// initialised goes with them, and the next machine must initialise anew.
func initializedNow(s *scope) bool {
	if s.initialized {
		return true
	}
	staying := s.machines.Filter(collections.Not(collections.HasDeletionTimestamp))
	return s.tenant.Answers && s.tenant.KubeadmConfig && len(staying) > 0
}
