package bed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// owner is the field manager of the objects that the bed applies.
const owner = client.FieldOwner("nova-bed")

// parallel is how many objects are applied at once: enough to hide the round
// trips, few enough to leave the processors to the API server.
const parallel = 8

// Apply applies objects by server-side apply: first namespaces and
// definitions, and once these are served everything else.
func Apply(ctx context.Context, c client.Client, objects ...*unstructured.Unstructured) error {
	var first, rest []*unstructured.Unstructured
	for _, object := range objects {
		switch object.GetKind() {
		case "Namespace", "CustomResourceDefinition":
			first = append(first, object)
		default:
			rest = append(rest, object)
		}
	}
	if err := applyAll(ctx, c, first); err != nil {
		return err
	}
	for _, object := range first {
		if err := awaitServed(ctx, c, object); err != nil {
			return err
		}
	}
	return applyAll(ctx, c, rest)
}

// applyAll applies all objects and reports all rejected ones, as kubectl does.
func applyAll(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	errs := make([]error, len(objects))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, object := range objects {
		group.Go(func() error {
			err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), owner, client.ForceOwnership)
			if err != nil {
				errs[i] = fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
			}
			return nil
		})
	}
	return errors.Join(group.Wait(), errors.Join(errs...))
}

// awaitServed waits until a definition is served. Other kinds need no wait.
func awaitServed(ctx context.Context, c client.Client, object *unstructured.Unstructured) error {
	if object.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	return await(ctx, time.Minute, "serving "+object.GetName(), func(ctx context.Context) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), crd); err != nil {
			return err
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%s is not established yet", object.GetName())
	})
}

// await tries until it succeeds or the time is up, and then returns why the
// last try failed.
func await(ctx context.Context, timeout time.Duration, operation string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("%s: %w", operation, err)
		}
	}
}

// pause waits, or returns why the context ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
