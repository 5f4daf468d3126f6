package loop

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// IgnoreOwnStatus drops updates that changed nothing but the status that the
// reconciler itself writes. Without it a failure whose words differ each time
// would wake the reconciler at once, past any back-off. A condition that came,
// went or changed its status is let through, once: a reconcile that read an
// older copy took what it wanted to write for written, and this one finds that
// out. It is also how a status that was dropped is noticed, and what Cluster
// API's helper for the Paused condition counts on.
func IgnoreOwnStatus() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: changedByOthers}
}

func changedByOthers(e event.UpdateEvent) bool {
	was, is := e.ObjectOld, e.ObjectNew
	return was.GetResourceVersion() == is.GetResourceVersion() || // a resync
		was.GetGeneration() != is.GetGeneration() ||
		was.GetDeletionTimestamp().IsZero() != is.GetDeletionTimestamp().IsZero() ||
		!maps.Equal(was.GetLabels(), is.GetLabels()) ||
		!maps.Equal(was.GetAnnotations(), is.GetAnnotations()) ||
		!slices.Equal(was.GetFinalizers(), is.GetFinalizers()) ||
		!equality.Semantic.DeepEqual(was.GetOwnerReferences(), is.GetOwnerReferences()) ||
		anyConditionChanged(was, is)
}

// anyConditionChanged reports whether any condition came, went or changed its
// status.
func anyConditionChanged(was, is client.Object) bool {
	return !maps.Equal(statuses(was), statuses(is))
}

func statuses(o client.Object) map[string]metav1.ConditionStatus {
	getter, ok := o.(conditions.Getter)
	if !ok {
		return nil
	}
	found := map[string]metav1.ConditionStatus{}
	for _, c := range getter.GetConditions() {
		found[c.Type] = c.Status
	}
	return found
}

// IgnoreCreate drops creations.
func IgnoreCreate(event.CreateEvent) bool { return false }

// IgnoreUpdate drops updates.
func IgnoreUpdate(event.UpdateEvent) bool { return false }

// IgnoreDelete drops deletions.
func IgnoreDelete(event.DeleteEvent) bool { return false }

// Watched reports whether o has the watch label that a manager was told to
// keep to. Reconcilers ask it themselves, as an event of another object, which
// needs no label, can name any object.
func Watched(o client.Object, value string) bool {
	return value == "" || labels.HasWatchLabel(o, value)
}

// ConditionChanged reports whether a condition came, went or changed its status.
func ConditionChanged(was, is client.Object, conditionType string) bool {
	return status(was, conditionType) != status(is, conditionType)
}

func status(o client.Object, conditionType string) string {
	getter, ok := o.(conditions.Getter)
	if !ok {
		return ""
	}
	c := conditions.Get(getter, conditionType)
	if c == nil {
		return ""
	}
	return string(c.Status)
}

// Keys is a source of requests for the objects that a driver names. Each is as
// urgent as urgency says.
func Keys(keys <-chan hypervisor.Key, urgency func(context.Context, hypervisor.Key) int) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case key := <-keys:
					add(queue, reconcile.Request{NamespacedName: types.NamespacedName(key)}, urgency(ctx, key))
				}
			}
		}()
		return nil
	})
}

// ListFor returns an empty list of the kind of o.
func ListFor(scheme *runtime.Scheme, o client.Object) (client.ObjectList, error) {
	gvk, err := apiutil.GVKForObject(o, scheme)
	if err != nil {
		return nil, fmt.Errorf("finding kind: %w", err)
	}
	made, err := scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("making list of %s: %w", gvk.Kind, err)
	}
	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("making list of %s: %T is no list", gvk.Kind, made)
	}
	return list, nil
}

// Siblings maps an object to the objects of list's kind that belong to the
// same Cluster by label. It works when the Cluster is gone.
func Siblings(c client.Reader, list client.ObjectList) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		name := o.GetLabels()[clusterv1.ClusterNameLabel]
		if name == "" {
			return nil
		}
		found, err := Select(ctx, c, list, o.GetNamespace(), client.MatchingLabels{clusterv1.ClusterNameLabel: name})
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Mapping to siblings")
		}
		return Requests(found)
	}
}

// Select lists objects of list's kind in a namespace. It leaves list alone, so
// that it can be shared.
func Select(ctx context.Context, c client.Reader, list client.ObjectList, namespace string, options ...client.ListOption) ([]client.Object, error) {
	list, _ = list.DeepCopyObject().(client.ObjectList)
	if err := c.List(ctx, list, append(options, client.InNamespace(namespace))...); err != nil {
		return nil, fmt.Errorf("listing %T: %w", list, err)
	}
	var found []client.Object
	err := meta.EachListItem(list, func(item runtime.Object) error {
		o, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("listing %T: %T is no object", list, item)
		}
		found = append(found, o)
		return nil
	})
	return found, err
}

// Requests returns a request for each object.
func Requests(objects []client.Object) []reconcile.Request {
	requests := make([]reconcile.Request, 0, len(objects))
	for _, o := range objects {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	return requests
}
