package infratest

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/machine"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/template"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
)

// Rig is one namespace with a hypervisor of its own, and a manager if started.
type Rig struct {
	// Client reads and writes without a cache.
	Client client.Client
	// Hypervisor is the hypervisor of the reconcilers.
	Hypervisor *fake.Hypervisor
	// Namespace holds all objects of the rig.
	Namespace string

	env  *env.Env
	stop func() error
}

// New makes an empty namespace and a hypervisor. Nothing reconciles yet.
func New(ctx context.Context, e *env.Env) (*Rig, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rig-"}}
	if err := e.Client.Create(ctx, namespace); err != nil {
		return nil, fmt.Errorf("making namespace: %w", err)
	}
	return &Rig{Client: e.Client, Hypervisor: fake.New(), Namespace: namespace.Name, env: e, stop: func() error { return nil }}, nil
}

// Options change how a manager runs.
type Options struct {
	// NoRetry makes failures wait for an event, however long, so that a test shows which events
	// trigger a reconciler.
	NoRetry bool
	// WatchFilter is the watch label to keep to.
	WatchFilter string
	// ManagerNamespace is where the Secrets of identities lie. Empty when the
	// manager does not know it.
	ManagerNamespace string
	// Fence identifies this management cluster. The zero value does not.
	Fence fence.Fence
}

// cache keeps a manager to a namespace, as --namespace does.
func (o Options) cache(namespace string) cache.Options {
	only := map[string]cache.Config{namespace: {}}
	options := cache.Options{DefaultNamespaces: only}
	if o.ManagerNamespace != "" {
		options.ByObject = map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: {}, o.ManagerNamespace: {}}},
		}
	}
	return options
}

// Run starts a manager with all reconcilers, as a binary does, for the
// namespace only.
func (r *Rig) Run(options Options) error {
	mgr, err := ctrl.NewManager(r.env.Config, ctrl.Options{
		Scheme:     r.env.Scheme,
		Metrics:    server.Options{BindAddress: "0"},
		Cache:      options.cache(r.Namespace),
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return fmt.Errorf("making manager: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	machines := Machines(r.Hypervisor)
	machines.WatchFilterValue = options.WatchFilter
	clusters := Clusters(r.Hypervisor)
	clusters.WatchFilterValue, clusters.ManagerNamespace = options.WatchFilter, options.ManagerNamespace
	machines.Fence, clusters.Fence = options.Fence, options.Fence
	if err := machines.SetupWithManager(ctx, mgr, options.controller()); err != nil {
		cancel()
		return err
	}
	if err := clusters.SetupWithManager(ctx, mgr, options.controller()); err != nil {
		cancel()
		return err
	}
	templates := Templates(r.Hypervisor)
	templates.WatchFilterValue = options.WatchFilter
	if err := templates.SetupWithManager(ctx, mgr, options.controller()); err != nil {
		cancel()
		return err
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	r.stop = func() error {
		cancel()
		return <-done
	}
	return nil
}

func (o Options) controller() controller.Options {
	first, longest := 100*time.Millisecond, time.Second // a test should not take long
	if o.NoRetry {
		first, longest = time.Hour, time.Hour
	}
	return controller.Options{
		MaxConcurrentReconciles: 2,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](first, longest),
	}
}

// Stop stops the manager, if one runs.
func (r *Rig) Stop() error {
	stop := r.stop
	r.stop = func() error { return nil }
	return stop()
}

// Quiet polls whether no verb of the hypervisor was called since the previous poll. Then no event
// of an earlier write is pending any more. A second between polls is enough.
func (r *Rig) Quiet(verb fake.Verb) func() bool {
	last := -1
	return func() bool {
		calls := r.Hypervisor.Calls(verb)
		defer func() { last = calls }()
		return calls == last
	}
}

// Templates returns a reconciler of machine templates that is not set up yet.
func Templates(h *fake.Hypervisor) *template.Reconciler[*vspherev1.NovaVSphereMachineTemplate] {
	return &template.Reconciler[*vspherev1.NovaVSphereMachineTemplate]{
		Sizer:        fake.Sizer[*vspherev1.NovaVSphereMachineTemplate]{Hypervisor: h},
		New:          func() *vspherev1.NovaVSphereMachineTemplate { return &vspherev1.NovaVSphereMachineTemplate{} },
		InfraCluster: &vspherev1.NovaVSphereCluster{},
	}
}

// Machines returns a reconciler of machines that is not set up yet.
func Machines(h *fake.Hypervisor) *machine.Reconciler[*vspherev1.NovaVSphereMachine] {
	return &machine.Reconciler[*vspherev1.NovaVSphereMachine]{
		Connector:    fake.Connector[*vspherev1.NovaVSphereMachine]{Hypervisor: h},
		New:          func() *vspherev1.NovaVSphereMachine { return &vspherev1.NovaVSphereMachine{} },
		InfraCluster: &vspherev1.NovaVSphereCluster{},
	}
}

// Clusters returns a reconciler of clusters that is not set up yet.
func Clusters(h *fake.Hypervisor) *cluster.Reconciler[*vspherev1.NovaVSphereCluster] {
	return &cluster.Reconciler[*vspherev1.NovaVSphereCluster]{
		Inspector:      fake.Inspector[*vspherev1.NovaVSphereCluster]{Hypervisor: h},
		New:            func() *vspherev1.NovaVSphereCluster { return &vspherev1.NovaVSphereCluster{} },
		NewMachineList: func() client.ObjectList { return &vspherev1.NovaVSphereMachineList{} },
		Identity: func(c *vspherev1.NovaVSphereCluster) (string, string) {
			ref := c.Identity()
			return ref.Kind, ref.Name
		},
		NewIdentity: func() credentials.Identity { return &vspherev1.NovaVSphereIdentity{} },
	}
}

// Event is an event as a person sees it.
type Event struct{ Type, Reason, Note string }

// Events returns the events about the object of a name.
func (r *Rig) Events(ctx context.Context, kind, name string) ([]Event, error) {
	list := &eventsv1.EventList{}
	if err := r.Client.List(ctx, list, client.InNamespace(r.Namespace)); err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	var found []Event
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.Kind == kind && e.Regarding.Name == name {
			found = append(found, Event{Type: e.Type, Reason: e.Reason, Note: e.Note})
		}
	}
	return found, nil
}
