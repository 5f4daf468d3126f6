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
func (r *ClusterReconciler) remove(ctx context.Context, d *delivery, how mode) error {
	ending := modules.Ending{
		Gone: how == abandon, Draining: d.site.draining, Reachable: d.site.silence == nil, Now: r.now(),
		Timeout: addonsv1.DefaultRemovalTimeout,
	}
	keep := false
	if d.set != nil {
		ending.Timeout = d.set.Spec.Removal.Timeout()
		keep = d.set.Spec.Removal.OnUnselect == addonsv1.RemovalKeep
	}
	return r.dismiss(ctx, d, d.pieces, nil, keep, ending)
}

// prune removes the modules that were removed from the set or are disabled on this Cluster.
func (r *ClusterReconciler) prune(ctx context.Context, d *delivery, rendering *modules.Rendering) error {
	staying := map[string][]string{}
	wanted := map[string]*modules.Module{}
	for i := range rendering.Modules {
		m := &rendering.Modules[i]
		if m.Object == nil && m.Unfit == "" {
			continue
		}
		wanted[m.Name] = m
		staying[m.Name] = m.Needs
	}
	var leaving []*piece
	for _, p := range d.pieces {
		m := wanted[p.module]
		switch {
		case m == nil:
			leaving = append(leaving, p)
		case m.Object != nil && (p.kind() != kindOf(m.Object) || p.object.GetName() != m.Object.GetName()):
			// The module has another kind or name now: the modules that it depends on must be replaced
			// too.
			leaving = append(leaving, p)
			delete(staying, p.module)
			for name, needs := range staying {
				staying[name] = without(needs, p.module)
			}
		}
	}
	return r.dismiss(ctx, d, leaving, staying, false, modules.Ending{
		Reachable: d.site.silence == nil, Now: r.now(), Timeout: d.set.Spec.Removal.Timeout(),
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

// dismiss performs the due action for each piece that must be deleted.
func (r *ClusterReconciler) dismiss(ctx context.Context, d *delivery, leaving []*piece, staying map[string][]string, keepAll bool, ending modules.Ending) error {
	if len(leaving) == 0 {
		return nil
	}
	plans := make([]modules.FluxObject, 0, len(leaving))
	for _, p := range leaving {
		plans = append(plans, p.plan(keepAll))
	}
	due := modules.PlanRemoval(plans, staying, ending)
	for _, p := range leaving {
		if err := r.act(ctx, p, due[p.module]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing module %s: %w", p.module, err)
		}
	}
	// The end of a deletion causes an event. The end of a timeout does not.
	d.site.soon()
	return nil
}

// act performs one action on a piece. Deleting a suspended Flux object changes nothing on the workload
// cluster.
func (r *ClusterReconciler) act(ctx context.Context, p *piece, do modules.Removal) error {
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
	r.names.free(placeOf(p.object))
	if release := releaseOf(p.object); release != "" {
		r.names.free(releasePlace(key{Namespace: p.object.GetNamespace(), Name: p.object.GetLabels()[addonsv1.ClusterLabel]}, release))
	}
	uid := p.object.GetUID()
	return r.Client.Delete(ctx, p.object, client.Preconditions{UID: &uid})
}

func (r *ClusterReconciler) patch(ctx context.Context, p *piece, merge string) error {
	return r.Client.Patch(ctx, p.object, client.RawPatch(types.MergePatchType, []byte(merge)), client.FieldOwner(fieldManager))
}
