package cluster

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var orphanedVMs = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "nova_cluster_orphaned_vms",
	Help: "VMs of an infrastructure cluster whose machines do not exist in the management cluster.",
}, []string{"kind", "namespace", "name"})

func init() { metrics.Registry.MustRegister(orphanedVMs) }
