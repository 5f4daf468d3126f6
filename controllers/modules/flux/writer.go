package flux

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/apply"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// FieldManager is the field manager of applied objects.
const FieldManager = "nova-modules"

// Writer writes the Flux objects of Clusters.
type Writer struct {
	client  client.Client
	applied apply.Memory
	names   nameReservations
}

// NewWriter returns a writer that has not written anything yet.
func NewWriter(c client.Client) *Writer {
	return &Writer{client: c}
}

// observed reads the current state of an object. It returns nil when the object does not exist.
func (w *Writer) observed(ctx context.Context, o client.Object) (client.Object, error) {
	existing, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("copying %s: %T is no object", o.GetName(), o)
	}
	err := w.client.Get(ctx, client.ObjectKeyFromObject(o), existing)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nil means that the object does not exist
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.GetName(), err)
	}
	return existing, nil
}

// Apply writes an object, if it differs from the observed state.
func (w *Writer) Apply(ctx context.Context, desired, observed client.Object) error {
	sent, err := w.applied.Apply(ctx, w.client, FieldManager, desired, observed)
	if sent {
		writes.WithLabelValues(desired.GetObjectKind().GroupVersionKind().Kind).Inc()
	}
	return err
}

// ApplySource writes a source, which the Clusters of a namespace share, and returns its state.
func (w *Writer) ApplySource(ctx context.Context, source client.Object) (FetchState, error) {
	observed, err := w.observed(ctx, source)
	if err != nil {
		return FetchState{}, err
	}
	return fetchState(observed), w.Apply(ctx, source, observed)
}

// Create writes an object that does not exist yet. It does not change an object of the same name that
// belongs to another owner, and returns that owner: two owners that apply the same object would
// overwrite each other indefinitely, each with the kubeconfig of its own workload cluster.
func (w *Writer) Create(ctx context.Context, o client.Object) (by string, err error) {
	existing, err := w.observed(ctx, o)
	if err != nil {
		return "", err
	}
	if by := holder(o, existing); by != "" {
		return by, nil
	}
	us := ownerOf(o)
	if first := w.names.reserve(objectNameOf(o), us, time.Now()); first != us {
		return first.String(), nil
	}
	return "", w.Apply(ctx, o, nil)
}

// PlaceHolder returns the other module that occupies the place of a module on the Cluster. It returns an
// empty string if there is none. Two Flux objects for one Helm release, or for the same objects, would
// overwrite each other's changes forever. all are the objects of the Cluster by set.
func (w *Writer) PlaceHolder(all map[client.ObjectKey][]*Object, cluster client.ObjectKey, o client.Object, existing *Object) string {
	at := placeOf(o)
	if at == (place{}) || existing != nil && placeOf(existing.Object) == at {
		return ""
	}
	us := ownerOf(o)
	for _, objects := range all {
		for _, p := range objects {
			if by := ownerOf(p.Object); placeOf(p.Object) == at && (by.set != us.set || by.module != us.module) {
				return by.String()
			}
		}
	}
	if first := w.names.reserve(at.nameOf(cluster), us, time.Now()); first != us {
		return first.String()
	}
	return ""
}

// Suspend makes Flux stop connecting to a workload cluster that has been unreachable for a long time.
func (w *Writer) Suspend(ctx context.Context, objects []*Object, outage time.Duration) error {
	if outage < maxOutage {
		return nil
	}
	for _, p := range objects {
		if p.management || p.Suspended || !p.Object.GetDeletionTimestamp().IsZero() {
			continue
		}
		if err := w.patch(ctx, p, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}},"spec":{"suspend":true}}`, addonsv1.UnreachableAnnotation)); err != nil {
			return fmt.Errorf("suspending module %s: %w", p.Module, err)
		}
		p.Suspended = true
	}
	return nil
}

// Resume clears the suspension that suspend set.
func (w *Writer) Resume(ctx context.Context, objects []*Object) error {
	for _, p := range objects {
		if p.Object.GetAnnotations()[addonsv1.UnreachableAnnotation] == "" || !p.Object.GetDeletionTimestamp().IsZero() {
			continue
		}
		if err := w.patch(ctx, p, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}},"spec":{"suspend":null}}`, addonsv1.UnreachableAnnotation)); err != nil {
			return fmt.Errorf("resuming module %s: %w", p.Module, err)
		}
		p.Suspended = false
	}
	return nil
}

// Remove performs one action on an object. Deleting a suspended Flux object changes nothing on the
// workload cluster.
func (w *Writer) Remove(ctx context.Context, p *Object, do modules.Removal) error {
	switch do {
	case modules.RemovalWait:
		return nil
	case modules.RemovalRelease:
		if !p.Suspended {
			if err := w.patch(ctx, p, `{"spec":{"suspend":true}}`); err != nil {
				return fmt.Errorf("suspending: %w", err)
			}
		}
	case modules.RemovalForce:
		if p.management {
			ctrl.LoggerFrom(ctx).Info("Flux did not remove a module of the management cluster in time: delete its objects by hand", "object", client.ObjectKeyFromObject(p.Object))
		}
		return w.patch(ctx, p, `{"metadata":{"finalizers":null}}`)
	case modules.RemovalDelete:
		if p.management && p.Suspended {
			// Flux would leave the objects behind, including credentials.
			if err := w.patch(ctx, p, `{"spec":{"suspend":false}}`); err != nil {
				return fmt.Errorf("resuming: %w", err)
			}
		}
	}
	if !p.Object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	removals.WithLabelValues(string(do)).Inc()
	w.applied.Forget(p.Object.GetUID())
	w.names.Forget(objectNameOf(p.Object))
	if at := placeOf(p.Object); at != (place{}) {
		w.names.Forget(at.nameOf(client.ObjectKey{Namespace: p.Object.GetNamespace(), Name: p.Object.GetLabels()[addonsv1.ClusterLabel]}))
	}
	uid := p.Object.GetUID()
	return w.client.Delete(ctx, p.Object, client.Preconditions{UID: &uid})
}

func (w *Writer) patch(ctx context.Context, p *Object, merge string) error {
	return w.client.Patch(ctx, p.Object, client.RawPatch(types.MergePatchType, []byte(merge)), client.FieldOwner(FieldManager))
}
