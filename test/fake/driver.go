package fake

import (
	"context"
	"errors"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// Object is the part of a machine or a cluster that the fake uses.
type Object interface {
	GetNamespace() string
	GetName() string
}

// Connector connects machines of type M to a fake hypervisor.
type Connector[M Object] struct{ Hypervisor *Hypervisor }

var _ hypervisor.Connector[Object] = Connector[Object]{}

// Connect returns a driver.
func (c Connector[M]) Connect(context.Context, M) (hypervisor.Driver[M], error) {
	c.Hypervisor.mu.Lock()
	defer c.Hypervisor.mu.Unlock()
	if err := c.Hypervisor.call(Connect); err != nil {
		return nil, err
	}
	return driver[M]{Hypervisor: c.Hypervisor, endpointID: c.Hypervisor.endpoint.ID}, nil
}

// Changes delivers the keys of machines whose VM changed.
func (c Connector[M]) Changes() <-chan hypervisor.Key { return c.Hypervisor.changes }

type driver[M Object] struct {
	Hypervisor *Hypervisor
	// endpointID is the ID of the endpoint to which the driver was connected.
	endpointID string
}

var _ hypervisor.EndpointIdentifier = driver[Object]{}

func (d driver[M]) Observe(_ context.Context, m M) (hypervisor.VM, error) {
	vm, err := d.Hypervisor.observe(KeyOf(m))
	if err == nil && d.currentID() != d.endpointID {
		return hypervisor.VM{}, kit.EndpointReplaced("fake")
	}
	return vm, err
}

// currentID returns the ID of the simulated endpoint.
func (d driver[M]) currentID() string {
	d.Hypervisor.mu.Lock()
	defer d.Hypervisor.mu.Unlock()
	return d.Hypervisor.endpoint.ID
}

func (d driver[M]) Create(_ context.Context, m M, l hypervisor.CreateOptions) error {
	return d.Hypervisor.create(KeyOf(m), l)
}

func (d driver[M]) Start(_ context.Context, m M) error { return d.Hypervisor.start(KeyOf(m)) }

func (d driver[M]) Syncers() []hypervisor.Syncer[M] {
	return []hypervisor.Syncer[M]{
		{Name: userData, AfterJoin: true, Apply: func(_ context.Context, m M) error {
			return d.Hypervisor.sync(KeyOf(m), func(vm *hypervisor.VM) { vm.UserData = false })
		}},
		{Name: settings, Apply: func(_ context.Context, m M) error {
			return d.Hypervisor.sync(KeyOf(m), func(vm *hypervisor.VM) { vm.OutOfSync = "" })
		}},
	}
}

func (d driver[M]) Shutdown(_ context.Context, m M) error { return d.Hypervisor.shutdown(KeyOf(m)) }

func (d driver[M]) Delete(_ context.Context, m M) error { return d.Hypervisor.remove(KeyOf(m)) }

// EndpointID returns the ID of the endpoint to which the driver was connected.
func (d driver[M]) EndpointID() string { return d.endpointID }

// Inspector connects clusters of type C to a fake hypervisor.
type Inspector[C Object] struct{ Hypervisor *Hypervisor }

var _ hypervisor.Inspector[Object] = Inspector[Object]{}

// Inspect reports the endpoint.
func (i Inspector[C]) Inspect(_ context.Context, c C) (hypervisor.Endpoint, error) {
	i.Hypervisor.mu.Lock()
	defer i.Hypervisor.mu.Unlock()
	endpoint := i.Hypervisor.endpoint
	endpoint.VMs = i.Hypervisor.owned(c.GetNamespace())
	return endpoint, i.Hypervisor.call(Inspect)
}

// EndpointChanges delivers the keys of clusters whose endpoint became reachable
// or unreachable.
func (i Inspector[C]) EndpointChanges() <-chan hypervisor.Key { return i.Hypervisor.endpointChanges }

// Labeled is the part of a template that the fake uses.
type Labeled interface {
	Object
	GetLabels() map[string]string
}

// Sizer connects templates of type T to a fake hypervisor.
type Sizer[T Labeled] struct{ Hypervisor *Hypervisor }

var _ hypervisor.Sizer[Labeled] = Sizer[Labeled]{}

// Size reports the capacity of machines created from a template, as soon as the
// cluster of the template is known.
func (s Sizer[T]) Size(_ context.Context, t T) (hypervisor.Size, error) {
	s.Hypervisor.mu.Lock()
	defer s.Hypervisor.mu.Unlock()
	if err := s.Hypervisor.call(Size); err != nil {
		return hypervisor.Size{}, err
	}
	if t.GetLabels()[clusterv1.ClusterNameLabel] == "" {
		return hypervisor.Size{}, &hypervisor.Error{Reason: "WaitingForCluster", Waiting: true, Err: errors.New("no cluster uses the template yet")}
	}
	return s.Hypervisor.size, nil
}

// KeyOf returns the key of an object.
func KeyOf(o Object) hypervisor.Key {
	return hypervisor.Key{Namespace: o.GetNamespace(), Name: o.GetName()}
}
