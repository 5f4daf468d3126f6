package connections

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const interval = 5 * time.Second

// simulate runs the cluster cache's loop over decide for a while: it retries an
// interval after each attempt, and each attempt takes the given time. It
// returns the start times of the attempts, relative to the first.
func simulate(a attempts, took, long time.Duration, version func(at time.Duration) string) []time.Duration {
	begin := time.Unix(1_000_000, 0)
	var begun []time.Duration
	for at := time.Duration(0); at < long; {
		next, allowed := decide(a, version(at), begin.Add(at), interval)
		a = next
		if allowed {
			begun = append(begun, at)
			at += took
		}
		at += interval
	}
	return begun
}

func unchanged(time.Duration) string { return "1" }

// A cluster that never responds is retried quickly for a minute, then more and
// more slowly, and occupies at most a sixth of a worker.
func TestDelaysGrow(t *testing.T) {
	begun := simulate(attempts{}, interval, 10*time.Minute, unchanged)
	eagerly, last := 0, time.Duration(0)
	for i, at := range begun {
		if at < eagerPeriod {
			eagerly++
		} else if i > 0 {
			last = at - begun[i-1]
		}
	}
	if eagerly != 6 {
		t.Errorf("%d attempts in the first minute, want 6: %v", eagerly, begun)
	}
	if last < 30*time.Second || last > 40*time.Second {
		t.Errorf("the last attempts are %s apart, want 30 s to 40 s: %v", last, begun)
	}
	if all := len(begun); all > 6+2+16 {
		t.Errorf("%d attempts in ten minutes: %v", all, begun)
	}
}

// A cluster that answers so slowly that an attempt takes long is delayed by as
// much more.
func TestSlowAttemptsAreDelayedByTheirTime(t *testing.T) {
	const took = 45 * time.Second
	begun := simulate(attempts{}, took, time.Hour, unchanged)
	if busy := time.Duration(len(begun)) * took; busy > time.Hour/4 {
		t.Errorf("occupies a worker for %s of an hour: %v", busy, begun)
	}
}

// A new kubeconfig lets one attempt go ahead at once, and a kubeconfig that
// changes all the time does not switch the delays off.
func TestChangesSkipADelay(t *testing.T) {
	late := attempts{first: time.Unix(0, 0), last: time.Unix(999_990, 0), ended: time.Unix(999_999, 0), step: 3, version: "1"}
	if _, allowed := decide(late, "1", time.Unix(1_000_000, 0), interval); allowed {
		t.Error("an attempt that is not due went ahead")
	}
	if _, allowed := decide(late, "2", time.Unix(1_000_000, 0), interval); !allowed {
		t.Error("the kubeconfig has changed, and the attempt was delayed")
	}
	answered := late
	answered.changed = true
	if _, allowed := decide(answered, "1", time.Unix(1_000_000, 0), interval); !allowed {
		t.Error("the cluster has answered, and the attempt was delayed")
	}
	begun := simulate(late, interval, 10*time.Minute, func(at time.Duration) string { return at.String() })
	if len(begun) > 3*10 {
		t.Errorf("%d attempts in ten minutes although a version a read skips at most one delay a minute: %v", len(begun), begun)
	}
}

// The reader passes everything through but a kubeconfig whose attempt is not
// due, and a cluster that was connected starts over.
func TestReader(t *testing.T) {
	key := client.ObjectKey{Namespace: "a", Name: "c"}
	secrets := fake.NewClientBuilder().WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c-kubeconfig"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "other"}},
	).Build()
	now, connected := time.Unix(1_000_000, 0), time.Time{}
	b := &backoff{
		Reader: secrets, interval: interval, now: func() time.Time { return now },
		initialized: func(context.Context, client.ObjectKey) bool { return true },
		connected:   func(context.Context, client.ObjectKey) time.Time { return connected },
	}
	read := func(name string) error {
		return b.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: name}, &corev1.Secret{})
	}
	delayed := 0
	for range 60 {
		err := read("c-kubeconfig")
		if errors.Is(err, ErrDelayed) {
			delayed++
		} else if err != nil {
			t.Fatal(err)
		}
		if err := read("other"); err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * interval)
	}
	if delayed < 20 {
		t.Errorf("%d of 60 reads were delayed", delayed)
	}
	connected = now
	now = now.Add(interval)
	for range 6 {
		if err := read("c-kubeconfig"); err != nil {
			t.Errorf("the cluster was connected, and reading its kubeconfig failed: %v", err)
		}
		connected, now = time.Time{}, now.Add(2*interval)
	}
	b.answered(key)
	now = now.Add(idlePeriod + time.Second)
	b.forget(now)
	if b.attempts.Len() != 0 {
		t.Errorf("a cluster that is read no more is kept: %v", b.attempts.All())
	}
}
