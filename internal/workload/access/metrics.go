package access

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var etcdObservations = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "nova_control_plane_etcd_observations_total",
	Help: "Observations of the etcd of a workload cluster by result.",
}, []string{"result"})

func init() { metrics.Registry.MustRegister(etcdObservations) }
