package reconcile

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// Priorities of requests in the work queue. A free worker takes the request
// with the highest priority, so that a thousand new machines do not delay a
// deletion.
const (
	// DeletionPriority is the priority of objects that are being deleted.
	DeletionPriority = 100
	// DefaultPriority is the priority of changed objects.
	DefaultPriority = 0
	// QueuedPriority is the priority of polls of queued creations.
	QueuedPriority = handler.LowPriority
)

// SamePriority returns the same priority for all keys.
func SamePriority[K objectKey](context.Context, K) int { return DefaultPriority }

// DeletionsFirst puts objects that are being deleted before all others in the work
// queue. It does not change the priority of other objects.
func DeletionsFirst() handler.EventHandler {
	return handler.Funcs{CreateFunc: enqueueCreated, UpdateFunc: enqueueUpdated}
}

func enqueueCreated(_ context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	addIfDeleting(queue, e.Object)
}

func enqueueUpdated(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	addIfDeleting(queue, e.ObjectNew)
}

func addIfDeleting(queue workqueue.TypedRateLimitingInterface[ctrl.Request], o client.Object) {
	if !o.GetDeletionTimestamp().IsZero() {
		add(queue, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}, DeletionPriority)
	}
}

// add adds a request with a priority, if the queue supports priorities.
func add(queue workqueue.TypedRateLimitingInterface[ctrl.Request], request ctrl.Request, priority int) {
	if ranked, ok := queue.(priorityqueue.PriorityQueue[ctrl.Request]); ok {
		ranked.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		return
	}
	queue.Add(request)
}
