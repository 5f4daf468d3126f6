package initlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), clusterv1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

func testCluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u-1"}}
}

func testMachine(name string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

// joinedMachine is a control plane machine whose node is there.
func joinedMachine(name string) *clusterv1.Machine {
	m := testMachine(name)
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: ""}
	m.Status.NodeRef.Name = name
	return m
}

func lockOf(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c-lock"}, Data: data}
}

func TestAcquire(t *testing.T) {
	initialized := testCluster()
	yes := true
	initialized.Status.Initialization.ControlPlaneInitialized = &yes
	for name, tc := range map[string]struct {
		reason  string
		cluster *clusterv1.Cluster
		objects []client.Object
		machine string
		held    bool
		holder  string
	}{
		"Free": {
			reason: "the first caller holds it", machine: "a", held: true, holder: "a",
		},
		"OwnAlready": {
			reason:  "a repeated call, for instance after a crash, has the same result",
			objects: []client.Object{testMachine("a"), lockOf(map[string]string{"machine": "a"})}, machine: "a", held: true, holder: "a",
		},
		"HeldByLiving": {
			reason:  "a holder that exists keeps it",
			objects: []client.Object{testMachine("a"), lockOf(map[string]string{"machine": "a"})}, machine: "b", held: false, holder: "a",
		},
		"HolderGone": {
			reason:  "a holder that was deleted loses it",
			objects: []client.Object{lockOf(map[string]string{"machine": "a"})}, machine: "b", held: true, holder: "b",
		},
		"HolderGoneAfterInit": {
			reason:  "a cluster is initialized once, even if the first machine was deleted",
			objects: []client.Object{lockOf(map[string]string{"machine": "a", "initialized": "true"})}, machine: "b", held: false, holder: "a",
		},
		"OwnAfterInit": {
			reason:  "the first machine does not initialize the cluster again",
			objects: []client.Object{testMachine("a"), lockOf(map[string]string{"machine": "a", "initialized": "true"})}, machine: "a", held: false, holder: "a",
		},
		"LockLostAfterInit": {
			reason: "the lost lock of an initialized cluster is not created again", cluster: initialized, machine: "a", held: false,
		},
		"HolderGoneAfterOthersJoined": {
			reason:  "a machine that joined proves the initialization, even if it was not recorded",
			objects: []client.Object{joinedMachine("b"), lockOf(map[string]string{"machine": "a"})}, machine: "c", held: false, holder: "a",
		},
		"LockLostAfterOthersJoined": {
			reason:  "a machine that joined proves it for a lost lock too",
			objects: []client.Object{joinedMachine("b")}, machine: "c", held: false,
		},
		"HolderGoneOthersWait": {
			reason:  "machines that only wait prove nothing",
			objects: []client.Object{testMachine("b"), lockOf(map[string]string{"machine": "a"})}, machine: "c", held: true, holder: "c",
		},
		"EmptyLock": {
			reason:  "a lock without a holder is free",
			objects: []client.Object{lockOf(nil)}, machine: "a", held: true, holder: "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(tc.objects...).Build()
			cluster := tc.cluster
			if cluster == nil {
				cluster = testCluster()
			}
			held, err := initlock.Acquire(t.Context(), c, cluster, testMachine(tc.machine))
			if err != nil {
				t.Fatal(err)
			}
			if held != tc.held {
				t.Errorf("%s: held = %v, want %v", tc.reason, held, tc.held)
			}
			lock := &corev1.ConfigMap{}
			err = c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c-lock"}, lock)
			if tc.holder == "" {
				if err == nil {
					t.Errorf("%s: a lock was created", tc.reason)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := lock.Data[initlock.MachineKey]; got != tc.holder {
				t.Errorf("%s: holder = %q, want %q", tc.reason, got, tc.holder)
			}
		})
	}
}

func TestLockIsOwnedByCluster(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).Build()
	if _, err := initlock.Acquire(t.Context(), c, testCluster(), testMachine("a")); err != nil {
		t.Fatal(err)
	}
	lock := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), initlock.Key(client.ObjectKey{Namespace: "ns", Name: "c"}), lock); err != nil {
		t.Fatal(err)
	}
	if len(lock.OwnerReferences) != 1 || lock.OwnerReferences[0].UID != "u-1" || lock.OwnerReferences[0].Kind != "Cluster" {
		t.Errorf("owner references = %v, want the Cluster", lock.OwnerReferences)
	}
	if lock.Labels[clusterv1.ClusterNameLabel] != "c" {
		t.Errorf("labels = %v, want the cluster's name", lock.Labels)
	}
}

func TestRace(t *testing.T) {
	const racers = 16
	for name, objects := range map[string][]client.Object{
		"ForFreeLock":     nil,
		"ForDeadHolder's": {lockOf(map[string]string{"machine": "dead"})},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...)
			for i := range racers {
				builder = builder.WithObjects(testMachine(fmt.Sprint("m", i)))
			}
			// No machine writes before all machines have read.
			var looked sync.WaitGroup
			looked.Add(racers)
			c := interceptor.NewClient(builder.Build(), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					err := c.Get(ctx, key, obj, opts...)
					if _, isLock := obj.(*corev1.ConfigMap); isLock {
						looked.Done()
						looked.Wait()
					}
					return err
				},
			})
			var held atomic.Int32
			var racing sync.WaitGroup
			for i := range racers {
				racing.Go(func() {
					won, err := initlock.Acquire(t.Context(), c, testCluster(), testMachine(fmt.Sprint("m", i)))
					// The others may also get a conflict.
					if err != nil && !apierrors.IsConflict(err) {
						t.Error(err)
					}
					if won {
						held.Add(1)
					}
				})
			}
			racing.Wait()
			if got := held.Load(); got != 1 {
				t.Errorf("%d machines hold the lock, want exactly 1", got)
			}
		})
	}
}

func TestMarkInitialized(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"Held": {testMachine("a"), lockOf(map[string]string{"machine": "a"})},
		"Lost": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).Build()
			key := client.ObjectKey{Namespace: "ns", Name: "c"}
			if done, err := initlock.Initialized(t.Context(), c, key); err != nil || done {
				t.Fatalf("before: initialized = %v, %v", done, err)
			}
			for range 2 {
				if err := initlock.MarkInitialized(t.Context(), c, testCluster()); err != nil {
					t.Fatal(err)
				}
			}
			if done, err := initlock.Initialized(t.Context(), c, key); err != nil || !done {
				t.Fatalf("after: initialized = %v, %v", done, err)
			}
			if held, err := initlock.Acquire(t.Context(), c, testCluster(), testMachine("b")); err != nil || held {
				t.Fatalf("after: held = %v, %v", held, err)
			}
		})
	}
}

func TestInitializedWhenOthersJoined(t *testing.T) {
	for name, tc := range map[string]struct {
		node string
		want bool
	}{
		"Holder": {"a", false},
		"Other":  {"b", true},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(testScheme(t)).
				WithObjects(joinedMachine(tc.node), lockOf(map[string]string{"machine": "a"})).Build()
			got, err := initlock.Initialized(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "c"})
			if err != nil || got != tc.want {
				t.Errorf("initialized = %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}

func TestLockOfFormerClusterIsIgnored(t *testing.T) {
	lock := lockOf(map[string]string{"machine": "a", "initialized": "true"})
	lock.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "c", UID: "u-0"}}
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(testCluster(), lock).Build()
	if done, err := initlock.Initialized(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "c"}); err != nil || done {
		t.Errorf("initialized = %v, %v, want false", done, err)
	}
	// The lock will be deleted soon, so the caller has to try again.
	if held, err := initlock.Acquire(t.Context(), c, testCluster(), testMachine("b")); held || err == nil {
		t.Errorf("held = %v, err = %v, want an error", held, err)
	}
	if err := initlock.MarkInitialized(t.Context(), c, testCluster()); err == nil {
		t.Error("a former cluster's lock was marked")
	}
}

func TestConflictIsAnError(t *testing.T) {
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(testScheme(t)).
		WithObjects(lockOf(map[string]string{"machine": "gone"})).Build(), interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			// Another client labels the lock at the same time.
			other := &corev1.ConfigMap{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(obj), other); err != nil {
				return err
			}
			other.Labels = map[string]string{"touched": ""}
			return errors.Join(c.Update(ctx, other), c.Update(ctx, obj, opts...))
		},
	})
	if held, err := initlock.Acquire(t.Context(), c, testCluster(), testMachine("b")); held || !apierrors.IsConflict(err) {
		t.Errorf("held = %v, err = %v, want a conflict", held, err)
	}
}

func TestFailuresAreReported(t *testing.T) {
	broken := errors.New("broken")
	objects := []client.Object{lockOf(map[string]string{"machine": "a"})}
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, isMachine := obj.(*clusterv1.Machine); isMachine {
				return broken
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	// An error when reading the holder does not prove that it was deleted.
	if held, err := initlock.Acquire(t.Context(), c, testCluster(), testMachine("b")); held || !errors.Is(err, broken) {
		t.Errorf("held = %v, err = %v", held, err)
	}
}
