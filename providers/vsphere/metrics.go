package vsphere

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_vsphere_requests_total",
		Help: "Requests to a vCenter by method and result (success, fault, error).",
	}, []string{"server", "method", "result"})

	requestSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "nova_vsphere_request_seconds",
		Help:    "Time requests to a vCenter took, without long polls.",
		Buckets: prometheus.ExponentialBuckets(0.01, 2, 12),
	}, []string{"server"})

	sessions = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_vsphere_sessions",
		Help: "Sessions with a vCenter by state (Connecting, Up, Down).",
	}, []string{"server", "state"})
)

func init() {
	metrics.Registry.MustRegister(requests, requestSeconds, sessions)
}
