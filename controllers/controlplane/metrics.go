package controlplane

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// ofOne are the labels of the metrics of a control plane.
var ofOne = []string{"namespace", "control_plane"}

var (
	replicas = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_control_plane_replicas",
		Help: "Machines of a control plane by state: Desired, Current, Ready, Available, UpToDate.",
	}, append(ofOne, "state"))
	etcdMembers = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_control_plane_etcd_members",
		Help: "Members of a control plane's own etcd by state: Voting, Answering (voting members that respond), Learner, and Foreign (members without a Machine). Quorum is lost if Answering is half of Voting or less.",
	}, append(ofOne, "state"))
	machinesCreated = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nova_control_plane_machines_created_total",
		Help: "Control plane machines created.",
	})
	actionsDone = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_control_plane_actions_total",
		Help: "Successful actions of the control plane controller by action.",
	}, []string{"action"})
	actionsFailed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_control_plane_action_failures_total",
		Help: "Failed actions of the control plane controller by action.",
	}, []string{"action"})
	remediations = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nova_control_plane_remediations_total",
		Help: "Failed control plane machines that were replaced.",
	})
	orphansDeleted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nova_control_plane_orphans_deleted_total",
		Help: "Objects deleted because their Machine was never created.",
	})
)

func init() {
	metrics.Registry.MustRegister(replicas, etcdMembers)
	metrics.Registry.MustRegister(machinesCreated, actionsDone, actionsFailed, remediations, orphansDeleted)
}
