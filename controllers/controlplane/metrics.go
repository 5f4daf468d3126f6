package controlplane

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// ofOne are the labels of what is told of a control plane.
var ofOne = []string{"namespace", "control_plane"}

var (
	replicas = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_control_plane_replicas",
		Help: "Machines of a control plane by state: Desired, Current, Ready, Available, UpToDate.",
	}, append(ofOne, "state"))
	etcdMembers = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_control_plane_etcd_members",
		Help: "Members of a control plane's own etcd by state: Voting, those of them that are Answering, Learner, and Foreign: those of no Machine. A lost quorum is Answering of half of Voting or less.",
	}, append(ofOne, "state"))
	certificatesExpireAt = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_control_plane_certificates_expire_timestamp_seconds",
		Help: "When the first of a control plane's certificates expires, in seconds since 1970, by what they are of: Machines, Kubeconfig, ClusterCA.",
	}, append(ofOne, "of"))
	machinesCreated = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nova_control_plane_machines_created_total",
		Help: "Control plane machines created.",
	})
	actionsDone = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_control_plane_actions_total",
		Help: "Actions carried out by kind.",
	}, []string{"action"})
	actionsFailed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_control_plane_action_failures_total",
		Help: "Actions that failed by kind.",
	}, []string{"action"})
	remediations = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nova_control_plane_remediations_total",
		Help: "Machines replaced because they failed.",
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
	metrics.Registry.MustRegister(replicas, etcdMembers, certificatesExpireAt)
	metrics.Registry.MustRegister(machinesCreated, actionsDone, actionsFailed, remediations, orphansDeleted, kubeconfigsIssued, etcdObservations)
}
