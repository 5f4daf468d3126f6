package template

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// scope holds the facts of one reconcile. Fields are set from top to bottom.
type scope[T Object] struct {
	template T
	// name is the name of the Cluster. It is empty if no Cluster uses the
	// template.
	name string
	// cluster is nil if it does not exist. ready is true if it and its
	// infrastructure cluster exist.
	cluster *clusterv1.Cluster
	ready   bool
	// size is the size of machines; if it is unknown, failure is the cause.
	size    *hypervisor.Size
	failure error
}

// findCluster sets the Cluster: the owner of the template, as Cluster API's
// topology sets it, the Cluster in its label, or that of a MachineDeployment
// that uses the template.
func (r *Reconciler[T]) findCluster(ctx context.Context, s *scope[T]) error {
	var err error
	if s.name, err = r.clusterName(ctx, s); err != nil || s.name == "" {
		return err
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, s.template.GetNamespace(), s.name)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading Cluster: %w", err)
	}
	s.cluster = cluster
	list, err := reconcile.ListFor(r.Client.Scheme(), r.InfraCluster)
	if err != nil {
		return err
	}
	found, err := reconcile.Select(ctx, r.Client, list, s.template.GetNamespace(),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.name}, client.UnsafeDisableDeepCopy)
	s.ready = len(found) > 0
	return err
}

// clusterName returns the name of the Cluster, or an empty string. Of several
// MachineDeployments it uses the first by name, so that the result is stable.
func (r *Reconciler[T]) clusterName(ctx context.Context, s *scope[T]) (string, error) {
	for _, owner := range s.template.GetOwnerReferences() {
		if isCluster(owner) {
			return owner.Name, nil
		}
	}
	if name := s.template.GetLabels()[clusterv1.ClusterNameLabel]; name != "" {
		return name, nil
	}
	gvk, err := apiutil.GVKForObject(s.template, r.Client.Scheme())
	if err != nil {
		return "", fmt.Errorf("finding kind of template: %w", err)
	}
	list := &clusterv1.MachineDeploymentList{}
	if err := r.Client.List(ctx, list, client.InNamespace(s.template.GetNamespace())); err != nil {
		return "", fmt.Errorf("listing MachineDeployments: %w", err)
	}
	first := &clusterv1.MachineDeployment{}
	for i := range list.Items {
		d := &list.Items[i]
		if d.Spec.Template.Spec.InfrastructureRef.Name == s.template.GetName() && usesTemplate(d, gvk.GroupKind()) &&
			(first.Name == "" || d.Name < first.Name) {
			first = d
		}
	}
	return first.Spec.ClusterName, nil
}

func isCluster(owner metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == clusterv1.GroupVersion.Group && owner.Kind == clusterv1.ClusterKind
}
