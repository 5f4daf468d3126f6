package modules

import (
	"context"
	"errors"
	"fmt"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// sourceGracePeriod is how long a new source is kept although nothing uses it yet.
const sourceGracePeriod = time.Minute

// sourceKey identifies a source.
type sourceKey struct{ kind, namespace, name string }

// countObjects counts the objects of a set by Cluster.
func countObjects(ctx context.Context, c client.Reader, set key) (map[key]int, error) {
	out := map[key]int{}
	for _, list := range []client.ObjectList{&helmv2.HelmReleaseList{}, &kustomizev1.KustomizationList{}} {
		all, err := objectsOf(ctx, c, list, set)
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			out[key{Namespace: o.GetNamespace(), Name: o.GetLabels()[addonsv1.ClusterLabel]}]++
		}
	}
	return out, nil
}

// objectsOf lists the objects that were written for a set.
func objectsOf(ctx context.Context, c client.Reader, list client.ObjectList, set key) ([]client.Object, error) {
	err := c.List(ctx, list, client.MatchingLabels{addonsv1.SetLabel: set.Name})
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

// deleteUnusedSources removes the sources of a set that no object uses.
func (r *SetReconciler) deleteUnusedSources(ctx context.Context, f *setScope) error {
	used, err := r.usedSources(ctx, f.key())
	if err != nil {
		return err
	}
	var errs []error
	for kind, list := range map[string]client.ObjectList{
		sourcev1.GitRepositoryKind:  &sourcev1.GitRepositoryList{},
		sourcev1.OCIRepositoryKind:  &sourcev1.OCIRepositoryList{},
		sourcev1.HelmRepositoryKind: &sourcev1.HelmRepositoryList{},
	} {
		all, err := objectsOf(ctx, r.Client, list, f.key())
		if err != nil {
			return err
		}
		for _, o := range all {
			young := r.now().Sub(o.GetCreationTimestamp().Time) < sourceGracePeriod
			switch {
			case used[sourceKey{kind, o.GetNamespace(), o.GetName()}]:
			case young && f.set.DeletionTimestamp.IsZero():
				f.requeueWithin(sourceGracePeriod)
			default:
				errs = append(errs, client.IgnoreNotFound(r.Client.Delete(ctx, o)))
			}
		}
	}
	return errors.Join(errs...)
}

func (f *setScope) requeueWithin(d time.Duration) {
	if f.requeueAfter == 0 || d < f.requeueAfter {
		f.requeueAfter = d
	}
}

// usedSources returns the sources that modules of the set reference.
func (r *SetReconciler) usedSources(ctx context.Context, set key) (map[sourceKey]bool, error) {
	used := map[sourceKey]bool{}
	for _, list := range []client.ObjectList{&helmv2.HelmReleaseList{}, &kustomizev1.KustomizationList{}} {
		all, err := objectsOf(ctx, r.Client, list, set)
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
