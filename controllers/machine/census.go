package machine

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// registry is the Prometheus collector: it holds the censuses of all reconcilers of this process.
type registry struct {
	mu  sync.Mutex
	all []*census
}

var censuses = &registry{}

// census stores the state of the machines of a reconciler for metrics. A machine is counted from its
// first reconcile on.
type census struct {
	joins sync.Once
	mu    sync.Mutex
	known map[types.NamespacedName]standing
}

// standing is the state of a machine: the state of its VM, and of the first boot of its guest.
type standing struct {
	kind, cluster string
	vm, boot      stay
}

// stay is a state and the time since which the machine is in it.
type stay struct {
	state string
	since time.Time
}

// next returns the state that follows was, according to the condition c. If the machine is seen for
// the first time, the time comes from the condition, which is older than this process.
func (was stay) next(c metav1.Condition, seen bool, now time.Time) stay {
	switch {
	case was.state == c.Reason && seen:
		return was
	case !seen && !c.LastTransitionTime.IsZero():
		return stay{state: c.Reason, since: c.LastTransitionTime.Time}
	}
	return stay{state: c.Reason, since: now}
}

// count stores the state of a machine.
func (c *census) count(key types.NamespacedName, kind, cluster string, vm, boot metav1.Condition) {
	c.joins.Do(func() {
		censuses.mu.Lock()
		defer censuses.mu.Unlock()
		censuses.all = append(censuses.all, c)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[types.NamespacedName]standing{}
	}
	was, seen := c.known[key]
	now := time.Now()
	c.known[key] = standing{kind: kind, cluster: cluster, vm: was.vm.next(vm, seen, now), boot: was.boot.next(boot, seen, now)}
}

// forget removes a machine from the census.
func (c *census) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}

// group is the key of machines that are counted together.
type group struct{ kind, namespace, cluster, state string }

// tally is the number of machines in a group and the longest time that one of them has been in the
// state.
type tally struct {
	n       int
	longest time.Duration
}

// tallies counts the machines of all reconcilers by the state that of returns.
func (r *registry) tallies(now time.Time, of func(standing) stay) map[group]tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[group]tally{}
	for _, c := range r.all {
		c.add(found, now, of)
	}
	return found
}

func (c *census) add(to map[group]tally, now time.Time, of func(standing) stay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, s := range c.known {
		is := of(s)
		if is.state == "" {
			continue
		}
		at := group{s.kind, key.Namespace, s.cluster, is.state}
		to[at] = tally{to[at].n + 1, max(to[at].longest, now.Sub(is.since))}
	}
}

// Describe sends the descriptors of the metrics.
func (r *registry) Describe(to chan<- *prometheus.Desc) {
	to <- machines
	to <- machinesLongest
	to <- boots
}

// Collect sends the metrics of all machines.
func (r *registry) Collect(to chan<- prometheus.Metric) {
	now := time.Now()
	for at, t := range r.tallies(now, func(s standing) stay { return s.vm }) {
		labels := []string{at.kind, at.namespace, at.cluster, at.state}
		to <- prometheus.MustNewConstMetric(machines, prometheus.GaugeValue, float64(t.n), labels...)
		to <- prometheus.MustNewConstMetric(machinesLongest, prometheus.GaugeValue, t.longest.Seconds(), labels...)
	}
	for at, t := range r.tallies(now, func(s standing) stay { return s.boot }) {
		to <- prometheus.MustNewConstMetric(boots, prometheus.GaugeValue, float64(t.n), at.kind, at.namespace, at.cluster, at.state)
	}
}
