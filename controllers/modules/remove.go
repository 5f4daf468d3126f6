package modules

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// remove removes all modules of a set from a Cluster.
func (r *ClusterReconciler) remove(ctx context.Context, d *rolloutTarget, how mode) error {
	removal := modules.RemovalState{
		SkipCleanup: how == releaseModules, Draining: d.scope.draining, Reachable: d.scope.unreachable == nil, Now: r.now(),
		Timeout: addonsv1.DefaultRemovalTimeout,
	}
	keep := false
	if d.set != nil {
		removal.Timeout = d.set.Spec.Removal.Timeout()
		keep = d.set.Spec.Removal.OnUnselect == addonsv1.RemovalKeep
	}
	return r.removeObjects(ctx, d, d.objects, nil, keep, removal)
}

// prune removes the modules that were removed from the set or are disabled on this Cluster.
func (r *ClusterReconciler) prune(ctx context.Context, d *rolloutTarget, rendering *modules.Rendering) error {
	remaining := map[string][]string{}
	wanted := map[string]*modules.Module{}
	for i := range rendering.Modules {
		m := &rendering.Modules[i]
		if m.Object == nil && m.Unsupported == "" {
			continue
		}
		wanted[m.Name] = m
		remaining[m.Name] = m.Needs
	}
	var removed []*fluxObject
	for _, p := range d.objects {
		m := wanted[p.module]
		switch {
		case m == nil:
			removed = append(removed, p)
		case m.Object != nil && (p.kind() != kindOf(m.Object) || p.object.GetName() != m.Object.GetName()):
			// The module has another kind or name now: the modules that it depends on must be replaced
			// too.
			removed = append(removed, p)
			delete(remaining, p.module)
			for name, needs := range remaining {
				remaining[name] = without(needs, p.module)
			}
		}
	}
	return r.removeObjects(ctx, d, removed, remaining, false, modules.RemovalState{
		Reachable: d.scope.unreachable == nil, Now: r.now(), Timeout: d.set.Spec.Removal.Timeout(),
	})
}

func without(names []string, name string) []string {
	var out []string
	for _, n := range names {
		if n != name {
			out = append(out, n)
		}
	}
	return out
}

// removeObjects performs the due action for each object that must be deleted.
func (r *ClusterReconciler) removeObjects(ctx context.Context, d *rolloutTarget, removed []*fluxObject, remaining map[string][]string, keepAll bool, removal modules.RemovalState) error {
	if len(removed) == 0 {
		return nil
	}
	plans := make([]modules.FluxObject, 0, len(removed))
	for _, p := range removed {
		plans = append(plans, p.toRemoval(keepAll))
	}
	due := modules.PlanRemoval(plans, remaining, removal)
	for _, p := range removed {
		if err := r.removeObject(ctx, p, due[p.module]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing module %s: %w", p.module, err)
		}
	}
	// The end of a deletion causes an event. The end of a timeout does not.
	d.scope.requeueSoon()
	return nil
}

// removeObject performs one action on an object. Deleting a suspended Flux object changes nothing on the
// workload cluster.
func (r *ClusterReconciler) removeObject(ctx context.Context, p *fluxObject, do modules.Removal) error {
	switch do {
	case modules.RemovalWait:
		return nil
	case modules.RemovalRelease:
		if !p.suspended {
			if err := r.patch(ctx, p, `{"spec":{"suspend":true}}`); err != nil {
				return fmt.Errorf("suspending: %w", err)
			}
		}
	case modules.RemovalForce:
		if p.management {
			ctrl.LoggerFrom(ctx).Info("Flux did not remove a module of the management cluster in time: delete its objects by hand", "object", client.ObjectKeyFromObject(p.object))
		}
		return r.patch(ctx, p, `{"metadata":{"finalizers":null}}`)
	case modules.RemovalDelete:
		if p.management && p.suspended {
			// Flux would leave the objects behind, including credentials.
			if err := r.patch(ctx, p, `{"spec":{"suspend":false}}`); err != nil {
				return fmt.Errorf("resuming: %w", err)
			}
		}
	}
	if !p.object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	removals.WithLabelValues(string(do)).Inc()
	r.applied.Forget(p.object.GetUID())
	r.nameReservations.release(objectNameOf(p.object))
	if release := releaseOf(p.object); release != "" {
		r.nameReservations.release(releaseName(key{Namespace: p.object.GetNamespace(), Name: p.object.GetLabels()[addonsv1.ClusterLabel]}, release))
	}
	uid := p.object.GetUID()
	return r.Client.Delete(ctx, p.object, client.Preconditions{UID: &uid})
}

func (r *ClusterReconciler) patch(ctx context.Context, p *fluxObject, merge string) error {
	return r.Client.Patch(ctx, p.object, client.RawPatch(types.MergePatchType, []byte(merge)), client.FieldOwner(fieldManager))
}
