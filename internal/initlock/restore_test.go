package initlock_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

func TestRestore(t *testing.T) {
	cluster := testCluster()
	yes := true
	cluster.Status.Initialization.ControlPlaneInitialized = &yes
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, objects := range map[string][]client.Object{
		"Initialized": {lockOf(map[string]string{"machine": "a", "initialized": "true"})},
		"LockLost":    nil,
		"Another":     {lockOf(map[string]string{"machine": "a", "restore": "before"})},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(append(objects, cluster, testMachine("b"), testMachine("d"))...).Build()
			order := func(machine string) initlock.Order {
				got, err := initlock.OrderFor(t.Context(), c, cluster, machine)
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			if err := initlock.BeginRestore(t.Context(), c, cluster, "r", "", now); err != nil {
				t.Fatal(err)
			}
			if got := order("b"); got != initlock.Wait {
				t.Errorf("the order is %s before a machine was named", got)
			}
			marked := func() {
				t.Helper()
				if done, err := initlock.Initialized(t.Context(), c, client.ObjectKeyFromObject(cluster)); err != nil || !done {
					t.Errorf("initialized = %t, %v: only an initialized cluster is restored", done, err)
				}
				if err := initlock.MarkInitialized(t.Context(), c, cluster); err != nil {
					t.Fatal(err)
				}
			}
			marked()
			if err := initlock.BeginRestore(t.Context(), c, cluster, "r", "b", now); err != nil {
				t.Fatal(err)
			}
			marked()
			got, err := initlock.ObserveRestore(t.Context(), c, cluster)
			if want := (initlock.Restore{Name: "r", Machine: "b", Since: now}); err != nil || got != want {
				t.Fatalf("restore = %v, %v, want %v", got, err, want)
			}
			if b, d := order("b"), order("d"); b != initlock.Initialize || d != initlock.Join {
				t.Errorf("orders are %s and %s, want Initialize and Join", b, d)
			}
			if err := initlock.EndRestore(t.Context(), c, cluster, "another"); err != nil {
				t.Fatal(err)
			}
			if got, err := initlock.ObserveRestore(t.Context(), c, cluster); err != nil || got.Name != "r" {
				t.Errorf("another restore's end ended it: %v, %v", got, err)
			}
			for range 2 {
				if err := initlock.EndRestore(t.Context(), c, cluster, "r"); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := initlock.ObserveRestore(t.Context(), c, cluster); err != nil || got.Name != "" {
				t.Errorf("restore = %v, %v after its end", got, err)
			}
			if got := order("b"); got != initlock.Join {
				t.Errorf("the order is %s after the end, want Join", got)
			}
		})
	}
}

func TestNoRestoreForAFormerCluster(t *testing.T) {
	lock := lockOf(map[string]string{"machine": "a", "restore": "r"})
	lock.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "c", UID: "u-0"}}
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(testCluster(), lock).Build()
	if got, err := initlock.ObserveRestore(t.Context(), c, testCluster()); err != nil || got.Name != "" {
		t.Errorf("restore = %v, %v", got, err)
	}
	if err := initlock.BeginRestore(t.Context(), c, testCluster(), "r", "", time.Now()); err == nil {
		t.Error("a former cluster's lock was taken")
	}
}
