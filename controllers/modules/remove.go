package modules

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/flux"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// remove removes all modules of a set from a Cluster.
func (r *ClusterReconciler) remove(ctx context.Context, d *rolloutTarget, how mode) error {
	removal := modules.RemovalState{
		SkipCleanup: how == releaseModules, Draining: d.scope.draining, Reachable: d.scope.unreachable == nil, Now: time.Now(),
		Timeout: addonsv1.DefaultRemovalTimeout,
	}
	keep := false
	if d.set != nil {
		removal.Timeout = d.set.Spec.Removal.Timeout()
		keep = d.set.Spec.Removal.OnUnselect == addonsv1.RemovalKeep
	}
	if err := r.rereadObjects(ctx, d); err != nil {
		return err
	}
	return r.removeObjects(ctx, d, d.objects, nil, keep, removal)
}

// rereadObjects reads the objects of the set on the Cluster from the API server, if the cache has any. The
// cache may miss an object that was created a moment ago: then a module would be removed before the
// modules that depend on it.
func (r *ClusterReconciler) rereadObjects(ctx context.Context, d *rolloutTarget) error {
	if len(d.objects) == 0 {
		return nil
	}
	objects, err := flux.List(ctx, r.apiReader, d.scope.key)
	if err != nil {
		return err
	}
	d.objects = objects[d.key]
	return nil
}

// prune removes the modules that were removed from the set or are disabled on this Cluster.
func (r *ClusterReconciler) prune(ctx context.Context, d *rolloutTarget, rendering *modules.Rendering) error {
	if removed, _ := d.outdated(rendering); len(removed) == 0 {
		return nil
	}
	if err := r.rereadObjects(ctx, d); err != nil {
		return err
	}
	removed, remaining := d.outdated(rendering)
	return r.removeObjects(ctx, d, removed, remaining, false, modules.RemovalState{
		Reachable: d.scope.unreachable == nil, Now: time.Now(), Timeout: d.set.Spec.Removal.Timeout(),
	})
}

// outdated returns the objects that the rendering does not have, and the remaining modules with the
// modules that they depend on.
func (d *rolloutTarget) outdated(rendering *modules.Rendering) (removed []*flux.Object, remaining map[string][]string) {
	remaining = map[string][]string{}
	wanted := map[string]*modules.Module{}
	for i := range rendering.Modules {
		m := &rendering.Modules[i]
		if m.Object == nil && m.Unsupported == "" {
			continue
		}
		wanted[m.Name] = m
		remaining[m.Name] = m.Needs
	}
	for _, p := range d.objects {
		m := wanted[p.Module]
		switch {
		case m == nil:
			removed = append(removed, p)
		case len(d.unfetched) > 0:
			// Nothing is replaced before the sources of all modules are fetched.
		case m.Object != nil && (p.Kind() != flux.KindOf(m.Object) || p.Object.GetName() != m.Object.GetName()):
			// The module has another kind or name now: the modules that it depends on must be replaced
			// too.
			removed = append(removed, p)
			delete(remaining, p.Module)
			for name, needs := range remaining {
				remaining[name] = slices.DeleteFunc(slices.Clone(needs), func(n string) bool { return n == p.Module })
			}
		}
	}
	return removed, remaining
}

// removeObjects performs the due action for each object that must be deleted.
func (r *ClusterReconciler) removeObjects(ctx context.Context, d *rolloutTarget, removed []*flux.Object, remaining map[string][]string, keepAll bool, removal modules.RemovalState) error {
	if len(removed) == 0 {
		return nil
	}
	var claims []client.Object
	if !removal.SkipCleanup {
		var err error
		if claims, err = r.claims(ctx, d, removal.Timeout); err != nil {
			return err
		}
	}
	plans := make([]modules.FluxObject, 0, len(removed))
	for _, p := range removed {
		plans = append(plans, p.ToRemoval(keepAll || movesTo(claims, p)))
	}
	due := modules.PlanRemoval(plans, remaining, removal)
	for _, p := range removed {
		if d.factsFailure != nil && due[p.Module] == modules.RemovalRelease && movesTo(claims, p) {
			r.Recorder.Eventf(d.scope.cluster, d.set, corev1.EventTypeWarning, addonsv1.FactsUnreadableReason, "Remove",
				"%s: Module %s is kept in the workload cluster, because another set may have it: %s", d.key.Name, p.Module, reconcile.Sentence(d.factsFailure))
		}
		if err := r.flux.Remove(ctx, p, due[p.Module]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing module %s: %w", p.Module, err)
		}
	}
	// The end of a deletion causes an event. The end of a timeout does not.
	d.scope.requeueSoon()
	return nil
}

// movesTo reports whether a set claims the place of an object that must be deleted. Then the objects in
// the workload cluster are kept, and that set takes them over. A removal that has begun is not
// interrupted.
func movesTo(claims []client.Object, p *flux.Object) bool {
	return p.Object.GetDeletionTimestamp().IsZero() &&
		slices.ContainsFunc(claims, func(o client.Object) bool { return flux.SamePlace(o, p.Object) })
}
