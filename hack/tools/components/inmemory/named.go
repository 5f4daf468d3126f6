package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// List lists objects. It removes a selector of names from the request to the
// store, because the store does not support it.
func (c groupClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	asked := client.ListOptions{}
	asked.ApplyOptions(opts)
	name, byName := exactName(asked.FieldSelector)
	if byName {
		asked.FieldSelector = nil
	}
	if err := c.Client.List(ctx, list, &asked); err != nil {
		return err
	}
	if fromEtcd(ctx) {
		memberNames(list)
	}
	if !byName {
		return nil
	}
	var kept []runtime.Object
	err := meta.EachListItem(list, func(item runtime.Object) error {
		object, err := meta.Accessor(item)
		if err == nil && object.GetName() == name {
			kept = append(kept, item)
		}
		return err
	})
	if err == nil {
		err = meta.SetList(list, kept)
	}
	if err != nil {
		return fmt.Errorf("selecting by name: %w", err)
	}
	return nil
}

// exactName returns the name in a selector, if the selector contains only a
// name.
func exactName(selector fields.Selector) (string, bool) {
	if selector == nil || len(selector.Requirements()) != 1 {
		return "", false
	}
	return selector.RequiresExactMatch("metadata.name")
}
