package machine

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

func TestRetriesWaitLongerEachTime(t *testing.T) {
	r, key := &retries{}, types.NamespacedName{Namespace: "ns", Name: "m"}
	if d := r.delay(key, create); d > 0 {
		t.Errorf("delay before any failure = %s", d)
	}
	want := reconcile.MinDelay
	for range 20 {
		r.tried(key, create)
		if !r.failed(key, create, errors.New("full")) {
			t.Fatal("failed() = false after another attempt")
		}
		if d := r.delay(key, create); d > want || d < want-time.Second/2 {
			t.Fatalf("delay = %s, want about %s", d, want)
		}
		want = min(2*want, reconcile.MaxDelay)
	}
}

func TestRetriesRemember(t *testing.T) {
	full := errors.New("full")
	cases := map[string]struct {
		due  action
		busy bool
		want error
	}{
		"DueAgain":       {due: create, want: full},
		"UnderWay":       {due: wait, busy: true, want: full},
		"Mended":         {due: start},
		"MendedAndUp":    {due: publish},
		"MendedAndBoots": {due: wait},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, key := &retries{}, types.NamespacedName{Name: "m"}
			r.failed(key, create, full)
			for range 2 {
				if got := r.lastFailure(key, tc.due, tc.busy); !errors.Is(got, tc.want) {
					t.Errorf("last() = %v, want %v", got, tc.want)
				}
			}
		})
	}
}

func TestRetriesReportOnce(t *testing.T) {
	r, key := &retries{}, types.NamespacedName{Name: "m"}
	steps := []struct {
		name string
		do   func() bool
		want bool
	}{
		{"first", func() bool { return r.failed(key, create, errors.New("full")) }, true},
		{"reported again", func() bool { return r.failed(key, create, errors.New("full")) }, false},
		{"after another attempt", func() bool { r.tried(key, create); return r.failed(key, create, errors.New("full")) }, true},
		{"of another action", func() bool { return r.failed(key, destroy, errors.New("locked")) }, true},
		{"after it was forgotten", func() bool { r.Forget(key); return r.failed(key, destroy, errors.New("locked")) }, true},
	}
	for _, step := range steps {
		if got := step.do(); got != step.want {
			t.Errorf("%s: failed() = %t, want %t", step.name, got, step.want)
		}
	}
}
