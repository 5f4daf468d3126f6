package approver

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var decisions = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "nova_bootstrap_certificate_requests_total",
	Help: "Decisions on certificate signing requests of nodes, by purpose (join, serving, renewal, control-plane) and decision (approve, deny, hold, sign).",
}, []string{"kind", "decision"})

func init() { metrics.Registry.MustRegister(decisions) }
