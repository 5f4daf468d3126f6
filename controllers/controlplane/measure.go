package controlplane

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// measure sets the metrics of one control plane that its conditions do not
// contain.
func measure(s *scope.Scope) {
	if s.Machines == nil {
		return
	}
	of := client.ObjectKeyFromObject(s.ControlPlane)
	for state, n := range map[string]int32{
		"Desired":   s.ControlPlane.GetReplicas(),
		"Current":   ptr.Deref(s.ControlPlane.Status.Replicas, 0),
		"Ready":     ptr.Deref(s.ControlPlane.Status.ReadyReplicas, 0),
		"Available": ptr.Deref(s.ControlPlane.Status.AvailableReplicas, 0),
		"UpToDate":  ptr.Deref(s.ControlPlane.Status.UpToDateReplicas, 0),
	} {
		replicas.WithLabelValues(of.Namespace, of.Name, state).Set(float64(n))
	}
	if !s.Workload.Pending {
		counts := membersByState(s.Workload.Etcd)
		if counts != nil {
			counts["Foreign"] = len(scope.ForeignMembers(s))
		}
		for _, state := range []string{"Voting", "Answering", "Learner", "Foreign"} {
			if n, known := counts[state]; known {
				etcdMembers.WithLabelValues(of.Namespace, of.Name, state).Set(float64(n))
			} else {
				etcdMembers.DeleteLabelValues(of.Namespace, of.Name, state)
			}
		}
	}
	certificates.SetExpiry(s, certificates.OfMachines, firstExpiry(s))
}

// membersByState counts members of etcd. While etcd could not be queried the
// counts are unknown: that is not a lost quorum as long as the API server
// answers.
func membersByState(health *etcd.Health) map[string]int {
	if health == nil {
		return nil
	}
	counts := map[string]int{"Voting": 0, "Learner": 0, "Answering": 0}
	for _, m := range health.Members {
		if m.Learner || m.Name == "" {
			counts["Learner"]++
			continue
		}
		counts["Voting"]++
		if m.Answers {
			counts["Answering"]++
		}
	}
	return counts
}

// firstExpiry returns when the first certificate of a machine expires; zero if
// unknown for all of them.
func firstExpiry(s *scope.Scope) time.Time {
	var first time.Time
	for _, machine := range s.Machines {
		expires := input.CertificatesExpire(s, machine, facts.NodeOf(machine, s.Workload.Nodes))
		if !expires.IsZero() && (first.IsZero() || expires.Before(first)) {
			first = expires
		}
	}
	return first
}

// deleteMetrics deletes the metrics of a deleted control plane.
func deleteMetrics(of client.ObjectKey) {
	match := prometheus.Labels{"namespace": of.Namespace, "control_plane": of.Name}
	for _, gauge := range []*prometheus.GaugeVec{replicas, etcdMembers, certificates.ExpireAt} {
		gauge.DeletePartialMatch(match)
	}
}
