package machine

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestRetryResult(t *testing.T) {
	passes := errors.New("the host is full")
	terminal := &hypervisor.Error{Terminal: true, Err: errors.New("there is no such network")}
	going := metav1.Now()
	cases := map[string]struct {
		failure      error
		failedBefore bool
		deleted      *metav1.Time
		timeLeft     time.Duration
		want         time.Duration
	}{
		"Passes":           {failure: passes, want: time.Minute},
		"PassesEarlier":    {failure: passes, failedBefore: true, want: time.Minute},
		"Terminal":         {failure: terminal},
		"TerminalEarlier":  {failure: terminal, failedBefore: true, want: time.Minute},
		"TerminalDeleting": {failure: terminal, deleted: &going, want: time.Minute},
		"LittlePatience":   {failure: passes, deleted: &going, timeLeft: time.Second, want: time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &vspherev1.NovaVSphereMachine{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted}}
			s := scope[*vspherev1.NovaVSphereMachine]{infra: m, action: shutdown, shutdownTimeLeft: tc.timeLeft}
			if !tc.failedBefore {
				s.failedNow(shutdown, tc.failure)
			}
			if got := s.retryResult(func(action) time.Duration { return time.Minute }).RequeueAfter; got != tc.want {
				t.Errorf("again() = %s, want %s", got, tc.want)
			}
		})
	}
}

// The part that may be retried first decides when the machine is reconciled again. A part with a new
// terminal failure waits for an event and does not keep the others from their retries.
func TestRetryResultOfParts(t *testing.T) {
	delays := map[action]time.Duration{"a": time.Minute, "b": time.Second, "c": 2 * time.Second, "not failed": -time.Hour}
	cases := map[string]struct {
		parts, terminal []action
		want            time.Duration
	}{
		"Shortest":           {parts: []action{"a", "b", "c"}, want: time.Second},
		"WithoutNewTerminal": {parts: []action{"a", "b", "c"}, terminal: []action{"b"}, want: 2 * time.Second},
		"FirstIsTerminal":    {parts: []action{"c", "a"}, terminal: []action{"c"}, want: time.Minute},
		"AllAreTerminal":     {parts: []action{"a", "b"}, terminal: []action{"a", "b"}},
		"OneIsDue":           {parts: []action{"a", "not failed"}, want: time.Millisecond},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := scope[*vspherev1.NovaVSphereMachine]{infra: &vspherev1.NovaVSphereMachine{}, action: syncVM, parts: tc.parts}
			for _, part := range tc.terminal {
				s.failedNow(part, &hypervisor.Error{Terminal: true, Err: errors.New("there is no such tag")})
			}
			if got := s.retryResult(func(do action) time.Duration { return delays[do] }).RequeueAfter; got != tc.want {
				t.Errorf("retryResult() = %s, want %s", got, tc.want)
			}
		})
	}
}
