package reconcile

import (
	"testing"
	"time"
)

func TestRateLimiter(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewRateLimiter[string](10*time.Second, time.Minute).(*rateLimiter[string])
	l.now = func() time.Time { return now }
	for _, step := range []struct {
		after, want time.Duration
	}{
		{0, 10 * time.Second},
		// Events cause more failures before the delay has ended.
		{time.Second, 9 * time.Second},
		{time.Second, 8 * time.Second},
		{8 * time.Second, 20 * time.Second},
		{20 * time.Second, 40 * time.Second},
		{40 * time.Second, time.Minute},
	} {
		now = now.Add(step.after)
		if got := l.When("a"); got != step.want {
			t.Fatalf("%s later the delay is %s, want %s", step.after, got, step.want)
		}
	}
	if got := l.When("b"); got != 10*time.Second {
		t.Errorf("the delay of another item is %s", got)
	}
	l.Forget("a")
	if got := l.When("a"); got != 10*time.Second {
		t.Errorf("the delay after a success is %s", got)
	}
	if l.until.Len() != 2 {
		t.Errorf("%d items are remembered", l.until.Len())
	}
}
