package access

import (
	"errors"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/probe"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

func TestReach(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	since := now.Add(-time.Hour)
	answers, down := probe.Result{Known: true, Answers: true}, probe.Result{Known: true, Since: since}
	failed := errors.New("failed")
	for name, tc := range map[string]struct {
		reason string
		last   probe.Result
		read   reading
		want   reachability
	}{
		"Unprobed":       {reason: "no probe yet", read: reading{err: failed, uncached: true}, want: reachability{unknown: true}},
		"UnprobedCached": {reason: "a cache may be old", want: reachability{unknown: true}},
		"UnprobedRead":   {reason: "a response is a proof", read: reading{uncached: true}, want: reachability{answers: true}},
		"Silent":         {reason: "it was probed and does not answer", last: down, read: reading{err: failed, uncached: true}, want: reachability{unreachableSince: since}},
		"SilentCached":   {reason: "a cache may be old", last: down, want: reachability{unreachableSince: since}},
		"SilentRead":     {reason: "a response is newer than the probe", last: down, read: reading{uncached: true}, want: reachability{answers: true}},
		"Answers":        {reason: "both agree", last: answers, want: reachability{answers: true}},
		"Broken":         {reason: "a connection broke in this moment", last: answers, read: reading{err: failed, uncached: true}, want: reachability{unknown: true}},
		"BrokenCached":   {reason: "the cache reconnects", last: answers, read: reading{err: failed}, want: reachability{unknown: true}},
		"Connecting": {
			reason: "the cluster cache serves other workload clusters too", last: answers,
			read: reading{err: failed, uncached: true, failingSince: now.Add(time.Second - timelimits.Grace)}, want: reachability{unknown: true},
		},
		"ConnectingCached": {
			reason: "conditions report it sooner", last: answers,
			read: reading{err: failed, failingSince: now.Add(time.Second - timelimits.Reconnect)}, want: reachability{unknown: true},
		},
		"Unreadable":       {reason: "no wait is without end", last: answers, read: reading{err: failed, uncached: true, failingSince: now.Add(-timelimits.Grace)}},
		"UnreadableCached": {reason: "no wait is without end", last: answers, read: reading{err: failed, failingSince: now.Add(-timelimits.Reconnect)}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reach(tc.last, tc.read, now); got != tc.want {
				t.Errorf("%s: want %+v, got %+v", tc.reason, tc.want, got)
			}
		})
	}
}
