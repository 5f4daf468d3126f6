package fairqueue

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// States of a creation in the metric.
const (
	inFlight = "InFlight"
	queued   = "Queued"
)

var creations = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "nova_creations",
	Help: "VM creations at a server by state: in progress (InFlight) or waiting in the creation queue (Queued).",
}, []string{"server", "state"})

func init() {
	metrics.Registry.MustRegister(creations)
}

// measure updates the metric. The caller holds the lock.
func (f *Queue[K]) measure() {
	if f.endpoint == "" {
		return
	}
	creations.WithLabelValues(f.endpoint, inFlight).Set(float64(len(f.active)))
	creations.WithLabelValues(f.endpoint, queued).Set(float64(len(f.queued) + len(f.reserved)))
}
