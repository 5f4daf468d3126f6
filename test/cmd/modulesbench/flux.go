package main

import (
	"context"
	"fmt"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// standIn reports written objects as ready, like Flux after its work.
func standIn(ctx context.Context, c client.Client) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := sweep(ctx, c); err != nil && ctx.Err() == nil {
			return fmt.Errorf("standing in for Flux: %w", err)
		}
	}
}

func sweep(ctx context.Context, c client.Client) error {
	releases, paths := &helmv2.HelmReleaseList{}, &kustomizev1.KustomizationList{}
	for _, list := range []client.ObjectList{releases, paths} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	report := func(o client.Object, observed *int64, conditions *[]metav1.Condition) {
		if *observed == o.GetGeneration() {
			return
		}
		*observed = o.GetGeneration()
		*conditions = []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "StandIn", LastTransitionTime: metav1.Now(), ObservedGeneration: o.GetGeneration(),
		}}
		group.Go(func() error {
			if err := c.Status().Update(ctx, o); err != nil && !apierrors.IsConflict(err) {
				return err
			}
			return nil
		})
	}
	for i := range releases.Items {
		o := &releases.Items[i]
		report(o, &o.Status.ObservedGeneration, &o.Status.Conditions)
	}
	for i := range paths.Items {
		o := &paths.Items[i]
		report(o, &o.Status.ObservedGeneration, &o.Status.Conditions)
	}
	return group.Wait()
}
