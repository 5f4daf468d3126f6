package machine

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
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

// count increments the counter for the result of the due action. An action that was accepted and
// failed later is counted under both results.
func (r *Reconciler[M]) count(s *scope[M], result string) {
	actionsTotal.WithLabelValues(strings.ToLower(string(s.action)), r.kind(s), result).Inc()
}

// kind returns the kind of machine for metric labels.
func (r *Reconciler[M]) kind(s *scope[M]) string {
	gvk, err := apiutil.GVKForObject(s.infra, r.Client.Scheme())
	if err != nil {
		return ""
	}
	return gvk.Kind
}
