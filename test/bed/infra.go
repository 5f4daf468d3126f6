package bed

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// Bootstrapped is the reason and message of a machine's first boot: of the
// named one, or of the first of the cluster. It is empty while nothing is known.
func (b *Bed) Bootstrapped(ctx context.Context, c Cluster, name string) (string, error) {
	h, err := b.Hypervisor(c.Hypervisor)
	if err != nil {
		return "", err
	}
	machines, err := b.ListInfra(ctx, h, "Machine", c.Namespace)
	if err != nil {
		return "", err
	}
	for _, m := range machines {
		if name != "" && m.GetName() != name {
			continue
		}
		for _, condition := range m.GetConditions() {
			if condition.Type == infrav1.NodeBootstrappedCondition {
				return condition.Reason + ": " + condition.Message, nil
			}
		}
	}
	return "", nil
}

func newInfra[T any](b *Bed, h Hypervisor, kind string) (T, error) {
	var none T
	made, err := b.Client.Scheme().New(infrav1.GroupVersion.WithKind(h.Facts().Kinds + kind))
	if err != nil {
		return none, fmt.Errorf("making object: %w", err)
	}
	object, ok := made.(T)
	if !ok {
		return none, fmt.Errorf("making object: %T is not a client.Object", made)
	}
	return object, nil
}

// CopyTemplate makes a machine template as another one, but from another
// template of VMs: an upgrade needs it, since machine templates do not change.
func (b *Bed) CopyTemplate(ctx context.Context, c Cluster, from, name, vmTemplate string) error {
	h, err := b.Hypervisor(c.Hypervisor)
	if err != nil {
		return err
	}
	template := &unstructured.Unstructured{}
	template.SetGroupVersionKind(infrav1.GroupVersion.WithKind(h.Facts().Kinds + "MachineTemplate"))
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: from}, template); err != nil {
		return fmt.Errorf("copying machine template %s: %w", from, err)
	}
	spec, _, err := unstructured.NestedMap(template.Object, "spec")
	if err == nil {
		err = unstructured.SetNestedField(spec, vmTemplate, h.Facts().TemplatePath...)
	}
	if err != nil {
		return fmt.Errorf("copying machine template %s: %w", from, err)
	}
	made := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	made.SetGroupVersionKind(template.GroupVersionKind())
	made.SetNamespace(c.Namespace)
	made.SetName(name)
	if err := b.Client.Create(ctx, made); err != nil {
		return fmt.Errorf("copying machine template %s: %w", from, err)
	}
	return nil
}
