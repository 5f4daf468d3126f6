package flux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// SourceGracePeriod is how long a new source is kept although nothing uses it yet.
const SourceGracePeriod = time.Minute

// FetchState is whether Flux has fetched a source.
type FetchState struct {
	// Fetched means that Flux has an artifact of the source, also if it cannot fetch it again now.
	Fetched bool
	// Failure is why Flux cannot fetch the source. It is empty while Flux fetches it.
	Failure string
}

// fetchState returns the state of a source. A source that does not exist is nil.
func fetchState(o client.Object) FetchState {
	source, is := o.(interface {
		sourcev1.Source
		GetConditions() []metav1.Condition
	})
	switch {
	case !is:
		return FetchState{}
	case source.GetArtifact() != nil:
		return FetchState{Fetched: true}
	}
	if c := meta.FindStatusCondition(source.GetConditions(), clusterv1.ReadyCondition); c != nil && c.Status == metav1.ConditionFalse {
		return FetchState{Failure: withoutDurations(cmp.Or(c.Message, c.Reason))}
	}
	return FetchState{}
}

// SourceFetched passes sources of which Flux has got the first artifact.
var SourceFetched = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !fetchState(e.ObjectOld).Fetched && fetchState(e.ObjectNew).Fetched
	},
}

// sourceKey identifies a source.
type sourceKey struct{ kind, namespace, name string }

// CountObjects counts the objects of a set by Cluster.
func CountObjects(ctx context.Context, c client.Reader, set client.ObjectKey) (map[client.ObjectKey]int, error) {
	out := map[client.ObjectKey]int{}
	for _, list := range []client.ObjectList{&helmv2.HelmReleaseList{}, &kustomizev1.KustomizationList{}} {
		all, err := objectsOf(ctx, c, list, set)
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			out[client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[addonsv1.ClusterLabel]}]++
		}
	}
	return out, nil
}

// objectsOf lists the objects that were written for a set. A large fleet has tens of thousands, so they are
// not copied from the cache: the caller must not change them.
func objectsOf(ctx context.Context, c client.Reader, list client.ObjectList, set client.ObjectKey) ([]client.Object, error) {
	err := c.List(ctx, list, client.MatchingLabels{addonsv1.SetLabel: set.Name}, client.UnsafeDisableDeepCopy)
	if meta.IsNoMatchError(err) {
		return nil, nil // nothing is written without Flux
	}
	if err != nil {
		return nil, fmt.Errorf("listing %T: %w", list, err)
	}
	var out []client.Object
	err = meta.EachListItem(list, func(o runtime.Object) error {
		if object, ok := o.(client.Object); ok && setOf(object) == set {
			out = append(out, object)
		}
		return nil
	})
	return out, err
}

// DeleteUnusedSources removes the sources of a set that no object uses and that are not pending: modules
// that are still to be written need those. New sources are kept for the
// grace period, unless the set is being deleted; kept is set if there are any.
func DeleteUnusedSources(ctx context.Context, c client.Client, set client.ObjectKey, pending map[client.ObjectKey]bool, setDeleting bool, now time.Time) (kept bool, err error) {
	used, err := usedSources(ctx, c, set)
	if err != nil {
		return false, err
	}
	var errs []error
	for kind, list := range map[string]client.ObjectList{
		sourcev1.GitRepositoryKind:  &sourcev1.GitRepositoryList{},
		sourcev1.OCIRepositoryKind:  &sourcev1.OCIRepositoryList{},
		sourcev1.HelmRepositoryKind: &sourcev1.HelmRepositoryList{},
	} {
		all, err := objectsOf(ctx, c, list, set)
		if err != nil {
			return false, err
		}
		for _, o := range all {
			young := now.Sub(o.GetCreationTimestamp().Time) < SourceGracePeriod
			switch {
			case used[sourceKey{kind, o.GetNamespace(), o.GetName()}], pending[client.ObjectKeyFromObject(o)]:
			case young && !setDeleting:
				kept = true
			default:
				errs = append(errs, client.IgnoreNotFound(c.Delete(ctx, o)))
			}
		}
	}
	return kept, errors.Join(errs...)
}

// usedSources returns the sources that modules of the set reference.
func usedSources(ctx context.Context, c client.Reader, set client.ObjectKey) (map[sourceKey]bool, error) {
	used := map[sourceKey]bool{}
	for _, list := range []client.ObjectList{&helmv2.HelmReleaseList{}, &kustomizev1.KustomizationList{}} {
		all, err := objectsOf(ctx, c, list, set)
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			switch o := o.(type) {
			case *kustomizev1.Kustomization:
				used[sourceKey{o.Spec.SourceRef.Kind, o.Namespace, o.Spec.SourceRef.Name}] = true
			case *helmv2.HelmRelease:
				if o.Spec.ChartRef != nil {
					used[sourceKey{o.Spec.ChartRef.Kind, o.Namespace, o.Spec.ChartRef.Name}] = true
				}
				if o.Spec.Chart != nil {
					ref := o.Spec.Chart.Spec.SourceRef
					used[sourceKey{ref.Kind, o.Namespace, ref.Name}] = true
				}
			}
		}
	}
	return used, nil
}
