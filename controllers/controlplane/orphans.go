package controlplane

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// deleteOrphans deletes objects that were created for a machine that was never
// created. No other controller creates such objects, and a control plane is
// never reconciled twice at a time, so none of them is about to get its
// machine.
func (r *maker) deleteOrphans(ctx context.Context, s *scope.Scope) error {
	children, err := r.children(ctx, s)
	if err != nil {
		return err
	}
	suspects := orphans(s, children, s.Machines)
	if len(suspects) == 0 {
		return nil
	}
	// The cache may not contain the newest machines yet.
	live, err := r.ownedMachines(ctx, r.APIReader, s)
	if err != nil {
		return err
	}
	for _, orphan := range orphans(s, suspects, live) {
		uid := orphan.GetUID()
		if err := r.Client.Delete(ctx, orphan, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting orphan %s: %w", orphan.GetName(), err)
		}
		orphansDeleted.Inc()
	}
	return nil
}

// children lists the objects that were created for machines of the control
// plane.
func (r *maker) children(ctx context.Context, s *scope.Scope) ([]client.Object, error) {
	where := []client.ListOption{client.InNamespace(s.ControlPlane.Namespace), client.MatchingLabels(identity(s))}
	ref := s.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	gvk, err := r.ContractKind(ctx, ref.APIGroup, strings.TrimSuffix(ref.Kind, clusterv1.TemplateSuffix))
	if err != nil {
		return nil, err
	}
	infra := &metav1.PartialObjectMetadataList{}
	infra.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := r.Client.List(ctx, infra, where...); err != nil {
		return nil, fmt.Errorf("listing infrastructure machines: %w", err)
	}
	configs := &bootstrapv1.NovaConfigList{}
	if err := r.Client.List(ctx, configs, where...); err != nil {
		return nil, fmt.Errorf("listing NovaConfigs: %w", err)
	}
	children := make([]client.Object, 0, len(infra.Items)+len(configs.Items))
	for i := range infra.Items {
		// The items of a list have no kind.
		infra.Items[i].SetGroupVersionKind(gvk)
		children = append(children, &infra.Items[i])
	}
	for i := range configs.Items {
		children = append(children, &configs.Items[i])
	}
	return children, nil
}

// orphans returns the children that no machine owns and that have no machine
// with their name.
func orphans(s *scope.Scope, children []client.Object, machines collections.Machines) []client.Object {
	var found []client.Object
	for _, child := range children {
		_, hasMachine := machines[child.GetName()]
		deleting := !child.GetDeletionTimestamp().IsZero()
		if !hasMachine && !deleting && ownedBy(child, s.ControlPlane) && metav1.GetControllerOf(child) == nil {
			found = append(found, child)
		}
	}
	return found
}
