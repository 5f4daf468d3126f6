package template

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Object is what the reconciler needs of a machine template.
type Object interface {
	client.Object
	conditions.Setter

	// Capacity returns what machines made from it will have; writing to it
	// writes to the object.
	Capacity() *infrav1.MachineTemplateStatus
}

// ClusterObject is what the reconciler needs of an infrastructure cluster.
type ClusterObject interface {
	client.Object
	conditions.Getter
}

// Reconciler reconciles machine templates of type T.
type Reconciler[T Object] struct {
	// Client reads through the cache and writes. Taken from the manager when
	// nil.
	Client client.Client
	// Recorder records events. Taken from the manager when nil.
	Recorder events.EventRecorder
	// Sizer knows what machines will have. The template it gets has the name
	// of its Cluster in the label cluster.x-k8s.io/cluster-name, whether or
	// not the one in the API server has, so the infrastructure cluster is
	// found as that of a machine is. Without the label no cluster is known;
	// what the template itself does not say is then an Error with Waiting.
	Sizer hypervisor.Sizer[T]
	// New returns an empty template.
	New func() T
	// InfraCluster is an empty infrastructure cluster of the kind that
	// machines made from the template belong to. When one becomes available or
	// changes, its templates are tried again at once.
	InfraCluster ClusterObject
	// WatchFilterValue limits the templates to those with this watch label.
	// Empty takes all.
	WatchFilterValue string
}

// Reconcile brings the status of one template up to date.
func (r *Reconciler[T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &scope[T]{template: r.New()}
	if err := r.Client.Get(ctx, req.NamespacedName, s.template); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.template.GetDeletionTimestamp().IsZero() || !loop.Watched(s.template, r.WatchFilterValue) || annotations.HasPaused(s.template) {
		return ctrl.Result{}, nil
	}
	if err := r.findCluster(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if s.cluster != nil && annotations.IsPaused(s.cluster, s.template) {
		return ctrl.Result{}, nil
	}
	return r.reconcile(ctx, s)
}

// owned are the conditions that nobody else writes.
var owned = patch.WithOwnedConditions{Conditions: []string{infrav1.CapacityKnownCondition}}

// reconcile asks for the size and writes it down.
func (r *Reconciler[T]) reconcile(ctx context.Context, s *scope[T]) (result ctrl.Result, reterr error) {
	helper, err := patch.NewHelper(s.template, r.Client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("preparing patch: %w", err)
	}
	before := conditions.GetReason(s.template, infrav1.CapacityKnownCondition)
	defer func() {
		s.report(reterr)
		if hypervisor.IsWaiting(reterr) {
			result, reterr = s.wait(), nil
		}
		if err := helper.Patch(ctx, s.template, owned); err != nil {
			reterr = errors.Join(reterr, fmt.Errorf("patching template: %w", err))
			return
		}
		r.announce(s, before)
		if hypervisor.IsTerminal(reterr) {
			reterr = reconcile.TerminalError(reterr)
		}
	}()
	return ctrl.Result{}, r.size(ctx, s)
}

// wait says when to look again at what is no failure. A cluster that appears
// brings an event; what the driver waits for may not.
func (s *scope[T]) wait() ctrl.Result {
	if !s.ready {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: loop.Net}
}

// size asks the driver what machines will have.
func (r *Reconciler[T]) size(ctx context.Context, s *scope[T]) error {
	if s.name != "" && !s.ready {
		return &hypervisor.Error{
			Reason: infrav1.WaitingForClusterReason, Waiting: true,
			Err: fmt.Errorf("waiting for the Cluster %q and its infrastructure cluster", s.name),
		}
	}
	asked, ok := s.template.DeepCopyObject().(T)
	if !ok {
		return fmt.Errorf("copying template: %T is another type", s.template)
	}
	if s.name != "" {
		labels := map[string]string{}
		maps.Copy(labels, asked.GetLabels())
		labels[clusterv1.ClusterNameLabel] = s.name
		asked.SetLabels(labels)
	}
	size, err := r.Sizer.Size(ctx, asked)
	if err != nil {
		return fmt.Errorf("finding out the size of machines: %w", err)
	}
	s.size = &size
	return nil
}

// announce tells people when the size becomes known, and when it cannot.
func (r *Reconciler[T]) announce(s *scope[T], before string) {
	now := conditions.Get(s.template, infrav1.CapacityKnownCondition)
	if now == nil || now.Reason == before || hypervisor.IsWaiting(s.failure) || hypervisor.IsPassing(s.failure) {
		return
	}
	kind := corev1.EventTypeNormal
	note := "What machines will have is known"
	if s.failure != nil {
		kind, note = corev1.EventTypeWarning, now.Message
	}
	r.Recorder.Eventf(s.template, nil, kind, now.Reason, "Size", "%s", note)
}
