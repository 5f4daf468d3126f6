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

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// Object is a machine template.
type Object interface {
	client.Object
	conditions.Setter

	// Capacity returns the status with the capacity of its machines; writing to
	// it writes to the object.
	Capacity() *infrav1.MachineTemplateStatus
}

// ClusterObject is an infrastructure cluster.
type ClusterObject interface {
	client.Object
	conditions.Getter
}

// Reconciler reconciles machine templates of type T.
type Reconciler[T Object] struct {
	// Client reads through the cache and writes. Defaults to the manager's
	// client.
	Client client.Client
	// Recorder records events. Defaults to the manager's recorder.
	Recorder events.EventRecorder
	// Sizer returns the size of machines. It gets a copy of the template whose
	// label cluster.x-k8s.io/cluster-name names its Cluster, even if the object
	// in the API server has no such label, so the Sizer finds the infrastructure
	// cluster as for a machine. Without the label the cluster is unknown; if a
	// value is then missing in the template, Size returns an Error with Waiting.
	Sizer hypervisor.Sizer[T]
	// New returns an empty template.
	New func() T
	// InfraCluster is an empty infrastructure cluster of the kind that belongs
	// to the template. When such a cluster becomes available or changes, its
	// templates are reconciled at once.
	InfraCluster ClusterObject
	// WatchFilterValue limits the templates to those with this watch label.
	// If not set, all are reconciled.
	WatchFilterValue string
}

// Reconcile brings the status of one template up to date.
func (r *Reconciler[T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &scope[T]{template: r.New()}
	if err := r.Client.Get(ctx, req.NamespacedName, s.template); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.template.GetDeletionTimestamp().IsZero() || !reconcile.Watched(s.template, r.WatchFilterValue) || annotations.HasPaused(s.template) {
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

// owned are the conditions that only this reconciler writes.
var owned = patch.WithOwnedConditions{Conditions: []string{infrav1.CapacityKnownCondition}}

// reconcile gets the size and writes it into the status.
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
		reterr = kit.Retry(reterr, false)
	}()
	return ctrl.Result{}, r.size(ctx, s)
}

// wait returns when to reconcile again while the size is not known yet. A new
// cluster triggers a reconcile; the end of a wait in the driver may not.
func (s *scope[T]) wait() ctrl.Result {
	if !s.ready {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: reconcile.PollInterval}
}

// size gets the size of machines from the driver.
func (r *Reconciler[T]) size(ctx context.Context, s *scope[T]) error {
	if s.name != "" && !s.ready {
		return &hypervisor.Error{
			Reason: infrav1.WaitingForClusterReason, Waiting: true,
			Err: fmt.Errorf("waiting for the Cluster %q and its infrastructure cluster", s.name),
		}
	}
	template, ok := s.template.DeepCopyObject().(T)
	if !ok {
		return fmt.Errorf("copying template: %T is another type", s.template)
	}
	if s.name != "" {
		labels := map[string]string{}
		maps.Copy(labels, template.GetLabels())
		labels[clusterv1.ClusterNameLabel] = s.name
		template.SetLabels(labels)
	}
	size, err := r.Sizer.Size(ctx, template)
	if err != nil {
		return fmt.Errorf("getting the size of machines: %w", err)
	}
	s.size = &size
	return nil
}

// announce records an event when the size becomes known and when it fails.
func (r *Reconciler[T]) announce(s *scope[T], before string) {
	now := conditions.Get(s.template, infrav1.CapacityKnownCondition)
	if now == nil || now.Reason == before || hypervisor.IsWaiting(s.failure) || hypervisor.IsTransient(s.failure) {
		return
	}
	kind := corev1.EventTypeNormal
	note := "Template capacity is known"
	if s.failure != nil {
		kind, note = corev1.EventTypeWarning, now.Message
	}
	r.Recorder.Eventf(s.template, nil, kind, now.Reason, "Size", "%s", note)
}
