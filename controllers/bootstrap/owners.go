package bootstrap

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util"
)

// findOwners finds the Machine and the Cluster that the NovaConfig belongs to,
// if they are there yet.
func (r *Reconciler) findOwners(ctx context.Context, s *scope) error {
	machine, err := util.GetOwnerMachine(ctx, r.Client, s.config.ObjectMeta)
	if apierrors.IsNotFound(err) || err == nil && machine == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Machine: %w", err)
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Cluster: %w", err)
	}
	s.machine, s.cluster = machine, cluster
	return nil
}
