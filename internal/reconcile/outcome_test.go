package reconcile

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestOutcome(t *testing.T) {
	for name, tc := range map[string]struct {
		outcome *Outcome
		waiting bool
		requeue time.Duration
	}{
		"Wait":    {Wait("Reason", "Waiting for %s", "a"), true, PollInterval},
		"Blocked": {Blocked("Reason", "Waiting for %s", "a"), false, PollInterval},
		"After":   {Wait("Reason", "Waiting for %s", "a").After(time.Second), true, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := errors.AsType[*Outcome](fmt.Errorf("step: %w", tc.outcome))
			if !ok || got.Waiting != tc.waiting || got.Result().RequeueAfter != tc.requeue {
				t.Errorf("outcome = %+v, want waiting %t and a requeue after %s", got, tc.waiting, tc.requeue)
			}
			if c := got.Condition("Type"); c.Type != "Type" || c.Status != "False" || c.Reason != "Reason" || c.Message != "Waiting for a" {
				t.Errorf("condition = %+v", c)
			}
		})
	}
}
