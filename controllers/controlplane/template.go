package controlplane

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// template makes the Cluster an owner of the machine template, as Cluster API
// does for templates of workers: clusterctl moves the objects that a Cluster
// owns, and without the template no machine can be created. A missing template
// is reported when a machine is created from it.
func (r *Reconciler) template(ctx context.Context, s *scope.Scope) error {
	ref := s.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	gvk, err := r.ContractKind(ctx, ref.APIGroup, ref.Kind)
	if err != nil {
		return fmt.Errorf("reading infrastructure template: %w", err)
	}
	template := &metav1.PartialObjectMetadata{}
	template.SetGroupVersionKind(gvk)
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: s.ControlPlane.Namespace, Name: ref.Name}, template)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading infrastructure template: %w", err)
	}
	owner := metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: scope.ClusterKind, Name: s.Cluster.Name, UID: s.Cluster.UID,
	}
	if util.HasExactOwnerRef(template.OwnerReferences, owner) {
		return nil
	}
	before := template.DeepCopy()
	template.OwnerReferences = util.EnsureOwnerRef(template.OwnerReferences, owner)
	// The resource version keeps owners that are added meanwhile.
	if err := r.Client.Patch(ctx, template, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("owning infrastructure template: %w", err)
	}
	return nil
}
