package controlplane

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	machinesCreated = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nova_control_plane_machines_created_total",
		Help: "Control plane machines created.",
	})
	orphansDeleted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nova_control_plane_orphans_deleted_total",
		Help: "Objects deleted because the machine they were made for was never created.",
	})
	kubeconfigsIssued = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nova_control_plane_kubeconfigs_issued_total",
		Help: "Kubeconfigs written, new or renewed.",
	})
	etcdObservations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_control_plane_etcd_observations_total",
		Help: "Looks at a tenant's etcd by result.",
	}, []string{"result"})
)

func init() {
	metrics.Registry.MustRegister(machinesCreated, orphansDeleted, kubeconfigsIssued, etcdObservations)
}
