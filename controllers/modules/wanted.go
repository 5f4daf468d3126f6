package modules

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// claims returns the places of the modules that all sets of the Cluster have in their current content. A
// wave of a rollout, a suspended set and a set that waits for another one may write them later, and so
// may a set that is invalid or does not support the Kubernetes version of the Cluster. If the facts of the
// Cluster are unreadable for longer than the timeout after the removal began, the modules are returned that any set may
// have.
func (r *ClusterReconciler) claims(ctx context.Context, d *rolloutTarget, timeout time.Duration) ([]client.Object, error) {
	s := d.scope
	if s.isDeleted() {
		return nil, nil
	}
	namespace, err := r.namespaceOf(ctx, s)
	if err != nil {
		return nil, err
	}
	var facts *modules.Facts
	var out []client.Object
	for _, set := range s.sets {
		// A set with an invalid selector selects no Cluster.
		if selection, err := selects(set, s.cluster, namespace); err != nil || selection != selected {
			continue
		}
		content := modules.ContentOf(&set.Spec)
		if !set.DeletionTimestamp.IsZero() || permitted(&content, set, r.ManagementFrom) != nil {
			continue
		}
		if facts == nil && d.factsFailure == nil {
			facts, d.factsFailure = r.facts.Read(ctx, s.cluster)
			if err := d.factsFailure; err != nil && r.removalOutages.Update(removalKey{s.key, d.key}, true, time.Now()) < timeout {
				return nil, reconcile.Blocked(addonsv1.FactsUnreadableReason,
					"The modules are removed when the facts of the Cluster can be read, at the latest after %s: another set may have them. %s", timeout, reconcile.Sentence(err))
			}
		}
		claims, err := modules.Claims(content, modules.Target{Name: s.key.Name, Facts: facts})
		if err != nil {
			return nil, err
		}
		out = append(out, claims...)
	}
	return out, nil
}

// render renders the content of a set for the Cluster.
func (r *ClusterReconciler) render(content modules.Content, d *rolloutTarget, revision string, facts *modules.Facts) (*modules.Rendering, error) {
	return modules.Render(content, modules.Target{
		Namespace: d.scope.key.Namespace, Name: d.scope.key.Name, Set: d.key.Name, Origin: d.key.Namespace,
		Revision: revision, Facts: facts, ManagementImages: r.ManagementImages,
	})
}

// selectCluster determines whether the set applies to the Cluster.
func (r *ClusterReconciler) selectCluster(ctx context.Context, d *rolloutTarget) error {
	d.selection = unselected
	if d.set == nil || d.scope.cluster == nil {
		return nil
	}
	namespace, err := r.namespaceOf(ctx, d.scope)
	if err != nil {
		return err
	}
	d.selection, err = selects(d.set, d.scope.cluster, namespace)
	return err
}

// namespaceOf reads the Namespace of the Cluster, for sets of other namespaces.
func (r *ClusterReconciler) namespaceOf(ctx context.Context, s *clusterScope) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: s.key.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading Namespace: %w", err)
	}
	return namespace, nil
}
