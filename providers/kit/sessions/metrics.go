package sessions

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Results of requests.
const (
	// Success means that the hypervisor accepted the request.
	Success = "success"
	// Fault means that the hypervisor rejected the request.
	Fault = "fault"
	// Error means that the request got no response, or a server error.
	Error = "error"
)

// The metrics of all providers. A provider leaves out those that it cannot
// measure, and the labels that its API does not have.
var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_hypervisor_requests_total",
		Help: "Requests to a hypervisor by method, result (success, fault, error) and, for HTTP, status code (or error).",
	}, []string{"provider", "server", "method", "result", "code"})

	requestSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "nova_hypervisor_request_seconds",
		Help:    "Duration of requests to a hypervisor by method, without long polls.",
		Buckets: prometheus.ExponentialBuckets(0.01, 2, 13),
	}, []string{"provider", "server", "method"})

	connections = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_hypervisor_connections",
		Help: "Open connections to a hypervisor.",
	}, []string{"provider", "server"})

	sessionPhases = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_hypervisor_sessions",
		Help: "Sessions with a hypervisor by state (Connecting, Up, Down).",
	}, []string{"provider", "server", "state"})

	// StreamAge is the time since the last update of a provider that receives
	// updates instead of sending requests for them.
	StreamAge = prometheus.NewDesc("nova_hypervisor_stream_age_seconds",
		"Seconds since the last update from a hypervisor, including empty updates; the maximum of all sessions.", []string{"provider", "server"}, nil)

	// Tasks is the number of tasks in progress.
	Tasks = prometheus.NewDesc("nova_hypervisor_tasks",
		"Tasks in progress at a hypervisor by action.", []string{"provider", "server", "action"}, nil)
)

func init() {
	metrics.Registry.MustRegister(requests, requestSeconds, connections, sessionPhases)
}

// Meter counts the requests and sessions of a provider at one server.
type Meter struct{ provider, server string }

// NewMeter returns the meter for a server.
func NewMeter(provider, server string) Meter { return Meter{provider, Label(server)} }

// Request counts a request. The code is empty if the API has no status codes.
func (m Meter) Request(method, result, code string) {
	requests.WithLabelValues(m.provider, m.server, method, result, code).Inc()
}

// Latency records the duration of a request.
func (m Meter) Latency(method string, took time.Duration) {
	requestSeconds.WithLabelValues(m.provider, m.server, method).Observe(took.Seconds())
}

// Connections changes the number of open connections.
func (m Meter) Connections(change int) {
	connections.WithLabelValues(m.provider, m.server).Add(float64(change))
}

// Phase counts the change of phase of a session. A new session has no previous
// phase, and a session that ended has no next phase.
func (m Meter) Phase(from, to Phase) {
	if from != "" {
		sessionPhases.WithLabelValues(m.provider, m.server, string(from)).Dec()
	}
	if to != "" {
		sessionPhases.WithLabelValues(m.provider, m.server, string(to)).Inc()
	}
}
