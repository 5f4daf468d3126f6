package machine

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Results of an action.
const (
	accepted = "accepted"
	failed   = "failed"
)

// byState lists the labels by which machines are counted.
var byState = []string{"kind", "namespace", "cluster", "state"}

var (
	provisionSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "nova_machine_provision_seconds",
		Help:    "Seconds from the creation of an infrastructure machine until its VM was provisioned.",
		Buckets: []float64{5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 3600},
	}, []string{"kind"})

	machines = prometheus.NewDesc("nova_machines",
		"Number of infrastructure machines by cluster and state, which is the reason of the condition VirtualMachineProvisioned.", byState, nil)

	machinesLongest = prometheus.NewDesc("nova_machines_longest_seconds",
		"Time that the machine that has been longest in this state has been in it, in seconds.", byState, nil)

	boots = prometheus.NewDesc("nova_machine_first_boots",
		"Number of infrastructure machines by cluster and progress of the first boot, which is the reason of the condition NodeBootstrapped.",
		byState, nil)

	actionsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_machine_actions_total",
		Help: "Actions requested from a hypervisor, by action, kind of machine and result: accepted or failed. An action that was accepted and fails later counts under both.",
	}, []string{"action", "kind", "result"})
)

func init() {
	metrics.Registry.MustRegister(provisionSeconds, actionsTotal, states)
}
