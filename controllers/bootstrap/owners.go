package bootstrap

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// poolOf returns the name of the MachinePool among the owners, if there is one.
func poolOf(owners []metav1.OwnerReference) string {
	for _, owner := range owners {
		group, err := schema.ParseGroupVersion(owner.APIVersion)
		if err == nil && owner.Kind == "MachinePool" && group.Group == clusterv1.GroupVersion.Group {
			return owner.Name
		}
	}
	return ""
}

// rejectPool reports why a MachinePool gets no data. All its machines would boot with the same data,
// but each machine needs its own join credentials.
func (r *Reconciler) rejectPool(ctx context.Context, s *scope, pool string) error {
	helper, err := patch.NewHelper(s.config, r.Client)
	if err != nil {
		return fmt.Errorf("preparing patch: %w", err)
	}
	before := s.reported()
	s.blocked = reconcile.Blocked(bootstrapv1.MachinePoolNotSupportedReason,
		"MachinePool %s cannot use a NovaConfig, because each machine joins with its own certificate, but all machines of a pool share the bootstrap data; use a MachineDeployment", pool)
	s.report(nil)
	if err := helper.Patch(ctx, s.config, owned); err != nil {
		return fmt.Errorf("patching NovaConfig: %w", err)
	}
	r.announce(s, before)
	return nil
}

// findOwners finds the Machine and the Cluster that the NovaConfig belongs to, if they exist already.
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
