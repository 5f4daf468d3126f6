package main

import (
	"context"
	"fmt"
	"strings"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

// reporters is the number of objects that are reported as ready at the same time.
const reporters = 16

// queueSize is more than the number of objects of the largest fleet, so that the watch never waits.
const queueSize = 1 << 17

// replaceFlux reports written objects as ready, as Flux does after its work, until the context ends.
func replaceFlux(ctx context.Context, e *env.Env) error {
	objects, err := cache.New(e.Config, cache.Options{Scheme: e.Scheme})
	if err != nil {
		return fmt.Errorf("watching Flux objects: %w", err)
	}
	queue := make(chan client.Object, queueSize)
	add := func(o any) {
		if object, ok := o.(client.Object); ok {
			queue <- object
		}
	}
	for _, kind := range []client.Object{
		&helmv2.HelmRelease{}, &kustomizev1.Kustomization{}, &sourcev1.GitRepository{}, &sourcev1.OCIRepository{}, &sourcev1.HelmRepository{},
	} {
		informer, err := objects.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching Flux objects: %w", err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}); err != nil {
			return fmt.Errorf("watching Flux objects: %w", err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return objects.Start(ctx) })
	for range reporters {
		group.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case o := <-queue:
					// A busy API server resets connections.
					if err := retry.OnError(retry.DefaultBackoff, func(error) bool { return ctx.Err() == nil }, func() error { return report(ctx, e.Client, o) }); err != nil && ctx.Err() == nil {
						return fmt.Errorf("reporting %s as ready: %w", o.GetName(), err)
					}
				}
			}
		})
	}
	return group.Wait()
}

// artifact is what Flux reports of a source that it has fetched.
func artifact() *meta.Artifact {
	return &meta.Artifact{Digest: "sha256:" + strings.Repeat("0", 64), LastUpdateTime: metav1.Now(), Path: "bench", Revision: "bench", URL: "http://bench.example"}
}

// report reports an object as ready at its generation.
func report(ctx context.Context, c client.Client, o client.Object) error {
	o, _ = o.DeepCopyObject().(client.Object)
	var observed *int64
	var conditions *[]metav1.Condition
	switch o := o.(type) {
	case *helmv2.HelmRelease:
		observed, conditions = &o.Status.ObservedGeneration, &o.Status.Conditions
	case *kustomizev1.Kustomization:
		observed, conditions = &o.Status.ObservedGeneration, &o.Status.Conditions
	case *sourcev1.GitRepository:
		observed, conditions, o.Status.Artifact = &o.Status.ObservedGeneration, &o.Status.Conditions, artifact()
	case *sourcev1.OCIRepository:
		observed, conditions, o.Status.Artifact = &o.Status.ObservedGeneration, &o.Status.Conditions, artifact()
	case *sourcev1.HelmRepository:
		observed, conditions, o.Status.Artifact = &o.Status.ObservedGeneration, &o.Status.Conditions, artifact()
	default:
		return fmt.Errorf("%T is not a known kind of object", o)
	}
	if *observed == o.GetGeneration() {
		return nil
	}
	*observed = o.GetGeneration()
	*conditions = []metav1.Condition{{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Bench", LastTransitionTime: metav1.Now(), ObservedGeneration: o.GetGeneration(),
	}}
	// A conflict means that the object has changed, which causes another event.
	if err := c.Status().Update(ctx, o); !apierrors.IsConflict(err) {
		return client.IgnoreNotFound(err)
	}
	return nil
}
