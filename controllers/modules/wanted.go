package modules

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// wantedObjects returns the Flux objects that all sets of the Cluster have in their current content. A
// wave of a rollout, a suspended set and a set that waits for another one may write them later.
func (r *ClusterReconciler) wantedObjects(ctx context.Context, s *clusterScope) ([]client.Object, error) {
	if s.isDeleted() {
		return nil, nil
	}
	var facts *modules.Facts
	var wanted []client.Object
	for name, set := range s.sets {
		d := &rolloutTarget{scope: s, key: name, set: set}
		if err := r.selectCluster(ctx, d); err != nil {
			return nil, err
		}
		content := modules.ContentOf(&set.Spec)
		if d.selection != selected || !set.DeletionTimestamp.IsZero() ||
			validate(&content, set, r.ManagementFrom) != nil || permitted(&content, set, r.ManagementFrom) != nil {
			continue
		}
		var err error
		if facts == nil {
			if facts, err = r.facts.Read(ctx, s.cluster); err != nil {
				return nil, err
			}
		}
		rendering, wrong := r.render(content, d, content.Revision(), facts)
		if wrong != nil {
			continue
		}
		for i := range rendering.Modules {
			if m := &rendering.Modules[i]; m.Object != nil {
				wanted = append(wanted, m.Object)
			}
		}
	}
	return wanted, nil
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
	namespace := &corev1.Namespace{}
	if d.set.Namespace != d.scope.key.Namespace {
		if err := r.Client.Get(ctx, client.ObjectKey{Name: d.scope.key.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading Namespace: %w", err)
		}
	}
	var err error
	d.selection, err = selects(d.set, d.scope.cluster, namespace)
	return err
}
