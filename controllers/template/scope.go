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

	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// scope is what one reconcile knows. Fields are filled from top to bottom.
type scope[T Object] struct {
	template T
	// name is that of the Cluster. Empty when nobody says whose machines the
	// template is for.
	name string
	// cluster is nil when it is not there, and ready set when it and its
	// infrastructure cluster are.
	cluster *clusterv1.Cluster
	ready   bool
	// size is what machines will have, or failure why that is not known.
	size    *hypervisor.Size
	failure error
}

// findCluster fills in the Cluster: the template's owner, as Cluster API's
// topology sets it, the one it is labelled with, or that of a MachineDeployment
// that makes machines from it.
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
	list, err := loop.ListFor(r.Client.Scheme(), r.InfraCluster)
	if err != nil {
		return err
	}
	found, err := loop.Select(ctx, r.Client, list, s.template.GetNamespace(),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.name}, client.UnsafeDisableDeepCopy)
	s.ready = len(found) > 0
	return err
}

// clusterName returns the name of the Cluster, or nothing. Of several
// MachineDeployments the first by name counts, so that the answer stays.
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
		if d.Spec.Template.Spec.InfrastructureRef.Name == s.template.GetName() && makesFrom(d, gvk.GroupKind()) &&
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
