package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_zvirt_requests_total",
		Help: "Requests to an engine by method, path (with {} instead of IDs) and status code (or error).",
	}, []string{"server", "method", "path", "code"})

	requestSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "nova_zvirt_request_seconds",
		Help:    "Duration of requests to an engine.",
		Buckets: prometheus.ExponentialBuckets(0.01, 2, 12),
	}, []string{"server"})

	connections = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_zvirt_connections",
		Help: "Open connections to an engine.",
	}, []string{"server"})

	sessionStates = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_zvirt_sessions",
		Help: "Sessions with an engine by state (Connecting, Up, Down).",
	}, []string{"server", "state"})
)

func init() {
	metrics.Registry.MustRegister(requests, requestSeconds, connections, sessionStates)
}

// meter counts the requests to an engine.
func meter(server string) ovirt.Meter {
	server = sessions.Label(server)
	return ovirt.Meter{
		Request: func(method, path, code string, took time.Duration) {
			requests.WithLabelValues(server, method, path, code).Inc()
			requestSeconds.WithLabelValues(server).Observe(took.Seconds())
		},
		Connections: func(change int) { connections.WithLabelValues(server).Add(float64(change)) },
	}
}

// countSessions counts the sessions with an engine by state.
func countSessions(server string) func(from, to sessions.Phase) {
	server = sessions.Label(server)
	return func(from, to sessions.Phase) {
		if from != "" {
			sessionStates.WithLabelValues(server, string(from)).Dec()
		}
		if to != "" {
			sessionStates.WithLabelValues(server, string(to)).Inc()
		}
	}
}
