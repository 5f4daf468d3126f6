package reconcile

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
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// IgnoreOwnStatus drops updates that changed only the status that the
// reconciler itself writes. Otherwise a failure with a different message each
// time would trigger the reconciler immediately, without back-off. An update
// that adds or removes a condition, or changes its status, is passed once: a
// reconcile with an older copy may have skipped a write, and this reconcile
// detects it. The reconciler also needs it to detect a cleared status, and
// Cluster API's helper for the Paused condition depends on it.
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

// anyConditionChanged reports whether any condition was added, was removed or
// changed its status.
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

// Watched reports whether o has the watch label of the manager. Reconcilers
// check it themselves, because an event of another object without the label can
// refer to any object.
func Watched(o client.Object, value string) bool {
	return value == "" || labels.HasWatchLabel(o, value)
}

// ConditionChanged reports whether a condition was added, was removed or
// changed its status.
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

// objectKey is the namespace and name of an object.
type objectKey interface {
	~struct{ Namespace, Name string }
}

// Keys is a source of requests for the objects whose keys are sent. The
// function urgency sets their priority.
func Keys[K objectKey](keys <-chan K, urgency func(context.Context, K) int) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case key := <-keys:
					add(queue, ctrl.Request{NamespacedName: types.NamespacedName(key)}, urgency(ctx, key))
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

// Siblings maps an object to the objects of list's kind with the label of the
// same Cluster. It also works after the Cluster is deleted.
func Siblings(c client.Reader, list client.ObjectList) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []ctrl.Request {
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

// Select lists objects of list's kind in a namespace. It does not change list,
// so that it can be shared.
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
func Requests(objects []client.Object) []ctrl.Request {
	requests := make([]ctrl.Request, 0, len(objects))
	for _, o := range objects {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	return requests
}
