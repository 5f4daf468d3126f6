package loop

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Priorities of requests in the work queue. A free worker takes the request
// with the highest priority, so that a thousand new machines do not delay a
// deletion.
const (
	// Urgent is the priority of objects that are being deleted.
	Urgent = 100
	// Usual is the priority of changed objects.
	Usual = 0
	// InLine is the priority of polls of queued creations.
	InLine = handler.LowPriority
)

// AllUsual returns the same priority for all keys.
func AllUsual[K objectKey](context.Context, K) int { return Usual }

// GoingFirst puts objects that are being deleted before all others in the work
// queue. It does not change the priority of other objects.
func GoingFirst() handler.EventHandler {
	return handler.Funcs{CreateFunc: createdGoing, UpdateFunc: updatedGoing}
}

func createdGoing(_ context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	addGoing(queue, e.Object)
}

func updatedGoing(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	addGoing(queue, e.ObjectNew)
}

func addGoing(queue workqueue.TypedRateLimitingInterface[reconcile.Request], o client.Object) {
	if !o.GetDeletionTimestamp().IsZero() {
		add(queue, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}, Urgent)
	}
}

// add adds a request with a priority, if the queue supports priorities.
func add(queue workqueue.TypedRateLimitingInterface[reconcile.Request], request reconcile.Request, priority int) {
	if ranked, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		ranked.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		return
	}
	queue.Add(request)
}
