package reconcile

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
)

func TestIgnoreOwnStatus(t *testing.T) {
	cases := map[string]struct {
		change func(*vspherev1.NovaVSphereMachine)
		want   bool
	}{
		"OwnCondition": {func(m *vspherev1.NovaVSphereMachine) {
			conditions.Set(m, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "Broken", Message: "again"})
		}, false},
		"OwnConditionFlips": {func(m *vspherev1.NovaVSphereMachine) {
			conditions.Set(m, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"})
		}, true},
		"OwnStatus":  {func(m *vspherev1.NovaVSphereMachine) { m.Status.FailureDomain = "zone-a" }, false},
		"Resync":     {func(m *vspherev1.NovaVSphereMachine) { m.ResourceVersion = "1" }, true},
		"Spec":       {func(m *vspherev1.NovaVSphereMachine) { m.Generation = 2 }, true},
		"Deletion":   {func(m *vspherev1.NovaVSphereMachine) { m.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, true},
		"Label":      {func(m *vspherev1.NovaVSphereMachine) { m.Labels = map[string]string{"a": "b"} }, true},
		"Annotation": {func(m *vspherev1.NovaVSphereMachine) { m.Annotations = map[string]string{"a": "b"} }, true},
		"Finalizer":  {func(m *vspherev1.NovaVSphereMachine) { m.Finalizers = []string{"a"} }, true},
		"Owner": {func(m *vspherev1.NovaVSphereMachine) {
			m.OwnerReferences = []metav1.OwnerReference{{Name: "a"}}
		}, true},
		"Paused": {func(m *vspherev1.NovaVSphereMachine) {
			conditions.Set(m, metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: "Paused"})
		}, true},
		"StatusDropped": {func(m *vspherev1.NovaVSphereMachine) { m.Status = infrav1.MachineStatus{} }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			was := &vspherev1.NovaVSphereMachine{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Generation: 1}}
			conditions.Set(was, metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: "NotPaused"})
			conditions.Set(was, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "Broken", Message: "once"})
			is := was.DeepCopy()
			is.ResourceVersion = "2"
			tc.change(is)
			if got := IgnoreOwnStatus().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != tc.want {
				t.Errorf("Update() = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestSentence(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"Plain":  {"creating VM: no room", "Creating VM: no room"},
		"Stop":   {"no room. ", "No room"},
		"Lines":  {"one\ntwo\n", "One; two;"},
		"Letter": {"ключ", "Ключ"},
		"Empty":  {"", ""},
		"Long":   {strings.Repeat("я", 600), "Я" + strings.Repeat("я", 499)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Sentence(errors.New(tc.text)); got != tc.want {
				t.Errorf("Sentence() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	keys := make(chan types.NamespacedName)
	if err := Keys(keys, SamePriority).Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	keys <- types.NamespacedName{Namespace: "ns", Name: "m"}
	want := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "m"}}
	if got, _ := queue.Get(); got != want {
		t.Errorf("queued %s, want %s", got, want)
	}
}

func TestOptionsKeepWhatIsSet(t *testing.T) {
	limiter := workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]()
	got := Options(controller.Options{RateLimiter: limiter, ReconciliationTimeout: time.Second})
	if got.RateLimiter != limiter || got.ReconciliationTimeout != time.Second {
		t.Errorf("Options() replaced a set option: %+v", got)
	}
	key := ctrl.Request{}
	bounded := Options(controller.Options{})
	if d := bounded.RateLimiter.When(key); d != firstRetry {
		t.Fatalf("When() = %s, want %s", d, firstRetry)
	}
	// Failures of reconciles that events cause during the delay are not
	// counted.
	for range 100 {
		if d := bounded.RateLimiter.When(key); d <= 0 || d > firstRetry {
			t.Fatalf("When() = %s, want at most %s", d, firstRetry)
		}
	}
}
