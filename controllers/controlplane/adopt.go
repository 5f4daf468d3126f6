package controlplane

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

// adoptLock makes the Cluster the owner of a lock without owner, as a backup
// restores it. Secrets are adopted where they are read.
func (r *Reconciler) adoptLock(ctx context.Context, s *scope.Scope) error {
	if !s.Lock.Lost {
		return nil
	}
	if err := initlock.Adopt(ctx, r.Client, s.Cluster); err != nil {
		return fmt.Errorf("owning init lock: %w", err)
	}
	return nil
}

// ownerless reports whether a machine belonged to this control plane and has no
// owner any more. The owner is set again when the machine is applied.
func ownerless(machine *clusterv1.Machine, controlPlane *controlplanev1.NovaControlPlane) bool {
	return metav1.GetControllerOf(machine) == nil &&
		machine.Labels[clusterv1.MachineControlPlaneNameLabel] == format.MustFormatValue(controlPlane.Name)
}
