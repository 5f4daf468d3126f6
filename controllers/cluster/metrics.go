package cluster

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var orphanedVMs = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "nova_cluster_orphaned_vms",
	Help: "VMs of an infrastructure cluster whose machines do not exist in the management cluster.",
}, []string{"kind", "namespace", "name"})

func init() { metrics.Registry.MustRegister(orphanedVMs) }

// kind returns the kind of cluster for metric labels.
func (r *Reconciler[C]) kind() string {
	gvk, err := apiutil.GVKForObject(r.New(), r.Client.Scheme())
	if err != nil {
		return ""
	}
	return gvk.Kind
}

// deleteMetrics deletes the metrics of a deleted cluster.
func (r *Reconciler[C]) deleteMetrics(key client.ObjectKey) {
	orphanedVMs.DeleteLabelValues(r.kind(), key.Namespace, key.Name)
}
