package machine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// stateCollector is the Prometheus collector: it stores the state of the machines of all reconcilers
// of this process. A machine is counted from its first reconcile on.
type stateCollector struct {
	reconcile.Memory[machineKey, machineState]
}

var states = &stateCollector{}

type machineKey struct {
	kind string
	types.NamespacedName
}

// machineState is the state of a machine: the state of its VM, and of the first boot of its guest.
type machineState struct {
	cluster  string
	vm, boot stateSince
}

// stateSince is a state and the time since which the machine is in it.
type stateSince struct {
	state string
	since time.Time
}

// next returns the state that follows was, according to the condition c. If the machine is seen for
// the first time, the time comes from the condition, which is older than this process.
func (was stateSince) next(c metav1.Condition, seen bool, now time.Time) stateSince {
	switch {
	case was.state == c.Reason && seen:
		return was
	case !seen && !c.LastTransitionTime.IsZero():
		return stateSince{state: c.Reason, since: c.LastTransitionTime.Time}
	}
	return stateSince{state: c.Reason, since: now}
}

// record stores the state of a machine.
func (r *stateCollector) record(key machineKey, cluster string, vm, boot metav1.Condition) {
	was, seen := r.Get(key)
	now := time.Now()
	r.Set(key, machineState{cluster: cluster, vm: was.vm.next(vm, seen, now), boot: was.boot.next(boot, seen, now)})
}

// group is the key of machines that are counted together.
type group struct{ kind, namespace, cluster, state string }

// stateCount is the number of machines in a group and the longest time that one of them has been in the
// state.
type stateCount struct {
	n       int
	longest time.Duration
}

// counts counts the machines by the state that of returns.
func (r *stateCollector) counts(now time.Time, of func(machineState) stateSince) map[group]stateCount {
	found := map[group]stateCount{}
	for key, s := range r.All() {
		is := of(s)
		if is.state == "" {
			continue
		}
		at := group{key.kind, key.Namespace, s.cluster, is.state}
		found[at] = stateCount{found[at].n + 1, max(found[at].longest, now.Sub(is.since))}
	}
	return found
}

// Describe sends the descriptors of the metrics.
func (r *stateCollector) Describe(to chan<- *prometheus.Desc) {
	to <- machines
	to <- machinesLongest
	to <- boots
}

// Collect sends the metrics of all machines.
func (r *stateCollector) Collect(to chan<- prometheus.Metric) {
	now := time.Now()
	for at, t := range r.counts(now, func(s machineState) stateSince { return s.vm }) {
		labels := []string{at.kind, at.namespace, at.cluster, at.state}
		to <- prometheus.MustNewConstMetric(machines, prometheus.GaugeValue, float64(t.n), labels...)
		to <- prometheus.MustNewConstMetric(machinesLongest, prometheus.GaugeValue, t.longest.Seconds(), labels...)
	}
	for at, t := range r.counts(now, func(s machineState) stateSince { return s.boot }) {
		to <- prometheus.MustNewConstMetric(boots, prometheus.GaugeValue, float64(t.n), at.kind, at.namespace, at.cluster, at.state)
	}
}
