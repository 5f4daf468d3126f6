package reconcile

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
)

// A deletion is processed before 500 new machines, if the event comes from the
// API server or from the driver.
func TestGoingPassesComing(t *testing.T) {
	going := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "going"}}
	object := &vspherev1.NovaVSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "going"}}
	doomed := object.DeepCopy()
	doomed.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	type queue = priorityqueue.PriorityQueue[ctrl.Request]
	cases := map[string]struct {
		tell  func(context.Context, queue)
		first bool
	}{
		"Updated": {func(ctx context.Context, q queue) {
			DeletionsFirst().Update(ctx, event.UpdateEvent{ObjectOld: object, ObjectNew: doomed}, q)
		}, true},
		"FoundAtStart": {func(ctx context.Context, q queue) {
			DeletionsFirst().Create(ctx, event.CreateEvent{Object: doomed, IsInInitialList: true}, q)
		}, true},
		"Pushed": {func(ctx context.Context, q queue) {
			keys := make(chan types.NamespacedName)
			if err := Keys(keys, func(context.Context, types.NamespacedName) int { return DeletionPriority }).Start(ctx, q); err != nil {
				t.Error(err)
			}
			keys <- going.NamespacedName
			keys <- going.NamespacedName // the first one is in the queue now
		}, true},
		"NotGoing": {func(ctx context.Context, q queue) {
			DeletionsFirst().Update(ctx, event.UpdateEvent{ObjectOld: object, ObjectNew: object}, q)
		}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := priorityqueue.New[ctrl.Request]("test")
			defer q.ShutDown()
			for n := range 500 {
				q.Add(ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: fmt.Sprintf("new-%d", n)}})
			}
			tc.tell(t.Context(), q)
			// The queue returns one item before it has sorted all.
			first, _ := q.Get()
			second, _ := q.Get()
			if got := first == going || second == going; got != tc.first {
				t.Errorf("handed out %s and %s", first, second)
			}
		})
	}
}
