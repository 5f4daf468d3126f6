package access

import (
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/probe"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

func TestInconclusive(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason          string
		last            probe.Result
		unreadableSince time.Time
		want            bool
	}{
		"Unprobed":   {reason: "no probe yet", want: true},
		"Silent":     {reason: "it was probed and does not answer", last: probe.Result{Known: true}},
		"Broken":     {reason: "a connection broke in this moment", last: probe.Result{Known: true, Answers: true}, want: true},
		"Connecting": {reason: "the cluster cache serves other workload clusters too", last: probe.Result{Known: true, Answers: true}, unreadableSince: now.Add(time.Second - timelimits.Grace), want: true},
		"Unreadable": {reason: "no wait is without end", last: probe.Result{Known: true, Answers: true}, unreadableSince: now.Add(-timelimits.Grace)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := inconclusive(tc.last, tc.unreadableSince, now); got != tc.want {
				t.Errorf("%s: want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}
