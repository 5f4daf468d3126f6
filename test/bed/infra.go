package bed

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// Infra is an infrastructure object, whatever the hypervisor.
type Infra interface {
	client.Object
	GetConditions() []metav1.Condition
}

// NewInfra returns an empty object of a kind of a hypervisor, such as Cluster
// or MachineTemplate.
func (b *Bed) NewInfra(h Hypervisor, kind string) (client.Object, error) {
	return newInfra[client.Object](b, h, kind)
}

// ListInfra lists the objects of a kind of a hypervisor, Cluster or Machine.
func (b *Bed) ListInfra(ctx context.Context, h Hypervisor, kind, namespace string) ([]Infra, error) {
	list, err := newInfra[client.ObjectList](b, h, kind+"List")
	if err != nil {
		return nil, err
	}
	if err := b.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing %s%ss: %w", h.Facts().Kinds, kind, err)
	}
	var items []Infra
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(Infra)
		if !ok {
			return fmt.Errorf("%T has no conditions", item)
		}
		items = append(items, object)
		return nil
	})
	return items, err
}

func newInfra[T any](b *Bed, h Hypervisor, kind string) (T, error) {
	var none T
	made, err := b.Client.Scheme().New(infrav1.GroupVersion.WithKind(h.Facts().Kinds + kind))
	if err != nil {
		return none, fmt.Errorf("making object: %w", err)
	}
	object, ok := made.(T)
	if !ok {
		return none, fmt.Errorf("making object: %T is none", made)
	}
	return object, nil
}
