package initlock_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func wasUp() *clusterv1.Cluster {
	c, yes := testCluster(), true
	c.Status.Initialization.ControlPlaneInitialized = &yes
	return c
}

func TestAssign(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		cluster *clusterv1.Cluster
		objects []client.Object
		from    string
		moved   bool
		holder  string
	}{
		"Free":     {reason: "the lock does not exist", holder: "b"},
		"Empty":    {reason: "the lock has no holder", objects: []client.Object{lockOf(nil)}, holder: "b"},
		"PassedOn": {reason: "it is as it was observed", objects: []client.Object{lockOf(map[string]string{"machine": "a"})}, from: "a", holder: "b"},
		"Taken":    {reason: "another machine holds it", objects: []client.Object{lockOf(map[string]string{"machine": "c"})}, moved: true, holder: "c"},
		"Moved": {
			reason: "it was assigned to another machine after it was observed", objects: []client.Object{lockOf(map[string]string{"machine": "c"})}, from: "a", moved: true, holder: "c",
		},
		"Initialized": {
			reason:  "a cluster is initialized once",
			objects: []client.Object{lockOf(map[string]string{"machine": "a", "initialized": "true"})}, from: "a", moved: true, holder: "a",
		},
		"Lost":      {reason: "the lost lock of an initialized cluster stays lost", cluster: wasUp(), moved: true},
		"LostEarly": {reason: "it was observed to be held", from: "a", moved: true},
		"Again": {
			reason: "a cluster is initialized again after all control plane machines were deleted", cluster: wasUp(), objects: []client.Object{lockOf(nil)}, holder: "b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(tc.objects...).Build()
			cluster := tc.cluster
			if cluster == nil {
				cluster = testCluster()
			}
			err := initlock.Assign(t.Context(), c, cluster, tc.from, "b", noon)
			if errors.Is(err, initlock.ErrMoved) != tc.moved || !tc.moved && err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			state, err := initlock.Observe(t.Context(), c, cluster)
			if err != nil || state.Holder != tc.holder {
				t.Errorf("%s: held by %q, want %q (%v)", tc.reason, state.Holder, tc.holder, err)
			}
			if !tc.moved && !state.Since.Equal(noon) {
				t.Errorf("since %s", state.Since)
			}
		})
	}
}

func TestOrderFor(t *testing.T) {
	leaving := testMachine("a")
	leaving.Finalizers = []string{"test/hold"}
	now := metav1.Now()
	leaving.DeletionTimestamp = &now
	for name, tc := range map[string]struct {
		reason  string
		cluster *clusterv1.Cluster
		objects []client.Object
		want    initlock.Order
	}{
		"NoneYet": {reason: "no machine was chosen", want: initlock.Wait},
		"Chosen":  {reason: "it was chosen", objects: []client.Object{lockOf(map[string]string{"machine": "b"})}, want: initlock.Initialize},
		"Beside": {
			reason:  "another machine was chosen and exists",
			objects: []client.Object{testMachine("a"), lockOf(map[string]string{"machine": "a"})}, want: initlock.Join,
		},
		"BesideLeaving": {
			reason: "the holder is being deleted and may not have initialized anything", objects: []client.Object{leaving, lockOf(map[string]string{"machine": "a"})},
			want: initlock.Wait,
		},
		"BesideGone": {
			reason: "the holder does not exist", objects: []client.Object{lockOf(map[string]string{"machine": "a"})}, want: initlock.Wait,
		},
		"BesideGoneAfterOthersJoined": {
			reason: "another machine has joined, so the cluster is initialized", objects: []client.Object{joinedMachine("c"), lockOf(map[string]string{"machine": "a"})},
			want: initlock.Join,
		},
		"Initialized": {
			reason: "the cluster is initialized", objects: []client.Object{lockOf(map[string]string{"machine": "b", "initialized": "true"})}, want: initlock.Join,
		},
		"Lost":  {reason: "the lost lock of an initialized cluster stays lost", cluster: wasUp(), want: initlock.Join},
		"Again": {reason: "all control plane machines were deleted", cluster: wasUp(), objects: []client.Object{lockOf(nil)}, want: initlock.Wait},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(tc.objects...).Build()
			cluster := tc.cluster
			if cluster == nil {
				cluster = testCluster()
			}
			got, err := initlock.OrderFor(t.Context(), c, cluster, "b")
			if err != nil || got != tc.want {
				t.Errorf("%s: order is %s, want %s (%v)", tc.reason, got, tc.want, err)
			}
		})
	}
}

func TestReset(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		cluster *clusterv1.Cluster
		objects []client.Object
	}{
		"Initialized": {reason: "the initialized machines were deleted", cluster: wasUp(), objects: []client.Object{lockOf(map[string]string{"machine": "a", "initialized": "true"})}},
		"Lost":        {reason: "the lock was lost", cluster: wasUp()},
		"Never":       {reason: "the cluster was never initialized", cluster: testCluster()},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(tc.objects...).WithObjects(tc.cluster).Build()
			for range 2 {
				if err := initlock.Reset(t.Context(), c, tc.cluster); err != nil {
					t.Fatal(err)
				}
			}
			done, err := initlock.Initialized(t.Context(), c, client.ObjectKeyFromObject(tc.cluster))
			if err != nil || done {
				t.Errorf("%s: initialized = %v (%v)", tc.reason, done, err)
			}
			if err := initlock.Assign(t.Context(), c, tc.cluster, "", "b", noon); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

func TestLockOfFormerClusterHasNoHolder(t *testing.T) {
	lock := lockOf(map[string]string{"machine": "a"})
	lock.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: "former"}}
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(lock, testMachine("a")).Build()
	if state, err := initlock.Observe(t.Context(), c, testCluster()); err != nil || state.Holder != "" {
		t.Errorf("held by %q (%v)", state.Holder, err)
	}
	if order, err := initlock.OrderFor(t.Context(), c, testCluster(), "b"); err != nil || order != initlock.Wait {
		t.Errorf("order is %s (%v)", order, err)
	}
	if err := initlock.Assign(t.Context(), c, testCluster(), "", "b", noon); err == nil {
		t.Error("a lock that is about to be garbage-collected is assigned")
	}
	got := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(lock), got); err != nil || got.Data["machine"] != "a" {
		t.Errorf("it was changed: %v (%v)", got.Data, err)
	}
}
