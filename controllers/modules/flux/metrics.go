package flux

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	writes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_modules_writes_total",
		Help: "Flux objects written, by kind. No object is written while nothing changes.",
	}, []string{"kind"})
	removals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_modules_removals_total",
		Help: "Modules removed from Clusters, by method.",
	}, []string{"how"})
)

func init() { metrics.Registry.MustRegister(writes, removals) }
