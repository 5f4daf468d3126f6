package polled

import (
	"context"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// driverRecord is the record of a driver.
type driverRecord struct {
	Record

	value int
}

func newRecords(appear time.Duration) *Records[string, driverRecord, *driverRecord] {
	return New[string, driverRecord](appear)
}

func TestMayAppear(t *testing.T) {
	requested := time.Now()
	for name, tt := range map[string]struct {
		unknownSince, exists time.Time
		appear               time.Duration
		unknown, soon        bool
	}{
		"no unknown result":  {time.Time{}, requested.Add(-time.Hour), time.Hour, false, false},
		"just requested":     {requested, requested.Add(-time.Hour), time.Hour, true, true},
		"in the same moment": {requested, requested, time.Hour, true, true},
		"requested long ago": {requested.Add(-time.Minute), requested.Add(-time.Hour), time.Minute, true, false},
		// The clocks of the manager and of the API server differ a little.
		"clock that is ahead": {requested, requested.Add(clockSkew - time.Second), time.Hour, true, true},
		"no machine yet":      {requested, requested.Add(clockSkew + time.Second), time.Hour, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := newRecords(tt.appear)
			one := r.Get("a")
			one.unknownSince = tt.unknownSince
			unknown, soon := r.MayAppear(one, tt.exists)
			g.Expect([]bool{unknown, soon}).To(Equal([]bool{tt.unknown, tt.soon}))
			g.Expect(one.IsAwaited()).To(Equal(tt.soon))
		})
	}
}

// An earlier process may have requested the VM of a machine, until the VM is seen. The end of
// the wait is reported once.
func TestAwaitedMachine(t *testing.T) {
	g := NewWithT(t)
	r := newRecords(time.Hour)
	one := r.Get("a")
	_, soon := r.MayAppear(one, time.Time{})
	g.Expect(soon).To(BeTrue())
	g.Expect(r.EndAwaiting(one)).To(BeFalse())
	r.Appear = time.Nanosecond
	g.Expect(r.EndAwaiting(one)).To(BeTrue())
	g.Expect(r.EndAwaiting(one)).To(BeFalse())
	unknown, soon := r.MayAppear(one, time.Time{})
	g.Expect([]bool{unknown, soon}).To(Equal([]bool{true, false}))
	one.Seen()
	unknown, _ = r.MayAppear(one, time.Time{})
	g.Expect(unknown).To(BeFalse())
	r.Appear = time.Hour
	one.Unknown()
	_, soon = r.MayAppear(one, time.Time{})
	g.Expect(soon).To(BeTrue(), "a request got no response")
}

// Only a list that is requested after the end of a request shows its result.
func TestListsBeforeTheEndOfARequest(t *testing.T) {
	g := NewWithT(t)
	r := newRecords(0)
	one, other := r.Get("a"), r.Get("b")
	older := r.StartList()
	r.Written(one)
	g.Expect(r.Shows(older, one)).To(BeFalse())
	g.Expect(r.Shows(older, other)).To(BeTrue())
	g.Expect(r.Shows(r.StartList(), one)).To(BeTrue())
	g.Expect(r.Lists()).To(BeEquivalentTo(2))
}

func TestRecords(t *testing.T) {
	g := NewWithT(t)
	r := newRecords(0)
	g.Expect(r.Known("a")).To(BeNil())
	one := r.Get("a")
	one.Key, one.value = hypervisor.Key{Namespace: "n", Name: "a"}, 7
	r.Get("b")
	g.Expect(r.Known("a")).To(BeIdenticalTo(one))
	g.Expect(r.Keys()).To(ConsistOf(one.Key), "no reconciler has named the other one")
	one.Seen()
	r.Reset()
	g.Expect(r.Known("a").value).To(BeZero())
	g.Expect(r.Known("a").Key.Name).To(Equal("a"))
	unknown, _ := r.MayAppear(r.Known("a"), time.Time{})
	g.Expect(unknown).To(BeTrue(), "another hypervisor may have the VM")
	r.Forget("a")
	g.Expect(r.Keys()).To(BeEmpty())
}

// A machine that becomes active ends the wait for the next list.
func TestWait(t *testing.T) {
	g := NewWithT(t)
	r := newRecords(0)
	one := r.Get("a")
	var mu sync.Mutex
	due := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		if one.IsActive() {
			return time.Time{}
		}
		return time.Now().Add(time.Hour)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Wait(t.Context(), due) }()
	mu.Lock()
	g.Expect(r.SetActive(one, true)).To(BeTrue())
	g.Expect(r.SetActive(one, true)).To(BeFalse())
	mu.Unlock()
	g.Eventually(ended, 10*time.Second).Should(Receive(Not(HaveOccurred())))
	r.SetActive(one, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(r.Wait(ctx, due)).To(MatchError(context.Canceled))
}
