package bootstrap

import (
	"context"
	"fmt"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
)

// labelMachine sets the role labels of the node on the Machine. A kubelet may not set them on its own
// Node; Cluster API copies them from the Machine. An existing label is kept, whatever its value.
func (r *Reconciler) labelMachine(ctx context.Context, s *scope) error {
	missing := map[string]string{}
	for key, value := range bootstrap.RoleLabels(bootstrap.Roles(&s.config.Spec.NodeConfigSpec, s.isControlPlane())) {
		if _, found := s.machine.Labels[key]; !found {
			missing[key] = value
		}
	}
	if len(missing) == 0 {
		return nil
	}
	before := s.machine.DeepCopy()
	if s.machine.Labels == nil {
		s.machine.Labels = map[string]string{}
	}
	maps.Copy(s.machine.Labels, missing)
	if err := r.Client.Patch(ctx, s.machine, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("labeling Machine: %w", err)
	}
	return nil
}
