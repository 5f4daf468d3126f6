package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// trouble is a disturbance of a cluster or of its infrastructure.
type trouble string

const (
	// killManager kills one manager of the management cluster.
	killManager trouble = "manager"
	// killManagers kills all of them at once.
	killManagers trouble = "managers"
	// killServer kills the management cluster's API server.
	killServer trouble = "apiserver"
	// killHost pulls the plug of a host.
	killHost trouble = "host"
	// cutHost pulls the network cable of a host for a while.
	cutHost trouble = "link"
	// cutHypervisor keeps everybody from the hypervisor for a while.
	cutHypervisor trouble = "hypervisor"
)

// change is a change of a cluster by a user.
type change string

const (
	scaleWorkers     change = "scale workers"
	scalePlane       change = "scale control planes"
	rolloutWorkers   change = "roll workers out"
	rolloutPlane     change = "roll control planes out by time"
	reconfigurePlane change = "roll control planes out by settings"
)

// weights are the frequencies of disturbances and changes. A seed depends on their order.
var (
	troubles = []weighted[trouble]{{killManager, 4}, {killManagers, 1}, {killServer, 2}, {killHost, 4}, {cutHost, 3}, {cutHypervisor, 1}}
	changes  = []weighted[change]{{scaleWorkers, 3}, {scalePlane, 3}, {rolloutWorkers, 2}, {rolloutPlane, 2}, {reconfigurePlane, 2}}
)

type weighted[T any] struct {
	item   T
	weight int
}

// Times between and of troubles.
const (
	shortestPause, longestPause = 5 * time.Second, 45 * time.Second
	shortestCut, longestCut     = 3 * time.Second, 25 * time.Second
)

// dice choose at random. Disturbances and changes have separate dice, so that a slower change does
// not alter the disturbances.
type dice struct{ *rand.Rand }

func newDice(seed, stream uint64) dice { return dice{rand.New(rand.NewPCG(seed, stream))} }

// pick draws one by its weight.
func pick[T any](d dice, from []weighted[T]) T {
	sum := 0
	for _, w := range from {
		sum += w.weight
	}
	drawn := d.IntN(sum)
	for _, w := range from {
		if drawn -= w.weight; drawn < 0 {
			return w.item
		}
	}
	return from[len(from)-1].item
}

// one draws a member of a list whose order does not count.
func (d dice) one(from []string) string {
	sorted := slices.Sorted(slices.Values(from))
	return sorted[d.IntN(len(sorted))]
}

// between draws a time.
func (d dice) between(shortest, longest time.Duration) time.Duration {
	return shortest + time.Duration(d.Int64N(int64(longest-shortest)))
}

// hosts are those that may be disturbed.
type hosts struct {
	planes, workers []string
	// spare is true if all voters answer and one of them can fail.
	spare bool
	// disturbed are those that something was done to and that are not back.
	disturbed []string
}

// victims are the hosts of which one may be disturbed now.
func (h hosts) victims() []string {
	var free []string
	if h.spare && !among(h.disturbed, h.planes) {
		free = append(free, h.planes...)
	}
	if len(h.workers) > 1 && !among(h.disturbed, h.workers) {
		free = append(free, h.workers...)
	}
	return free
}

func among(some, all []string) bool {
	return slices.ContainsFunc(some, func(name string) bool { return slices.Contains(all, name) })
}
