package modules

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var clusters = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "nova_modules_clusters",
	Help: "Clusters of a NovaModuleSet by state: selected, updated, ready, failed.",
}, []string{"namespace", "set", "state"})

func init() { metrics.Registry.MustRegister(clusters) }
