package cluster

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// maxNames is the number of machines that a message names.
const maxNames = 5

// report sets the conditions from the result of the reconcile. It is the only place that sets them,
// except for Paused.
func (s *scope[C]) report(err error) {
	conditions.Set(s.infra, fence.Condition(s.fenced))
	if hypervisor.IsTransient(err) && conditions.Has(s.infra, infrav1.HypervisorAvailableCondition) {
		return
	}
	if s.inspected {
		available := metav1.Condition{
			Type: infrav1.HypervisorAvailableCondition, Status: metav1.ConditionTrue, Reason: infrav1.HypervisorAvailableReason,
		}
		if s.failure != nil {
			available = s.failed(infrav1.HypervisorAvailableCondition, s.failure)
		}
		conditions.Set(s.infra, available)
		if s.failure == nil {
			s.reportEndpoint()
		}
	}
	conditions.Set(s.infra, s.ready(err))
}

// ready returns the condition that shows whether machines can be created and, if not, the cause.
func (s *scope[C]) ready(err error) metav1.Condition {
	c := metav1.Condition{Type: infrav1.ClusterReadyCondition, Status: metav1.ConditionFalse}
	switch {
	case s.fenced != nil:
		c.Reason, c.Message = fence.OtherReason, reconcile.Sentence(s.fenced)
	case len(s.remaining) > 0:
		c.Reason, c.Message = infrav1.WaitingForMachinesReason, waitingFor(s.remaining)
	case err != nil:
		return s.failed(infrav1.ClusterReadyCondition, err)
	case s.deleting():
		c.Reason, c.Message = infrav1.ClusterDeletingReason, "The cluster is being deleted"
	case !s.endpointKnown():
		c.Reason = infrav1.WaitingForEndpointReason
		c.Message = "Neither spec.controlPlaneEndpoint nor the Cluster sets a control plane endpoint"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, infrav1.ClusterReadyReason
	}
	return c
}

// failed returns the condition for a failure. If credentials are rejected, it names the Secret to
// correct.
func (s *scope[C]) failed(conditionType string, err error) metav1.Condition {
	c := kit.Failure(s.infra, conditionType, err)
	if c.Reason == infrav1.CredentialsInvalidReason && s.credentialsLocation != "" && !strings.Contains(c.Message, "Secret") {
		c.Message += "; correct " + s.credentialsLocation
	}
	return c
}

// waitingFor names machines, and counts those beyond the limit.
func waitingFor(names []string) string {
	more := ""
	if len(names) > maxNames {
		more = fmt.Sprintf(" and %d more", len(names)-maxNames)
		names = names[:maxNames]
	}
	return "Waiting for these machines to be deleted: " + strings.Join(names, ", ") + more
}

// conditionsBefore holds the conditions at the start of a reconcile.
type conditionsBefore struct{ ready, available, endpoint metav1.Condition }

func snapshot(from conditions.Getter) conditionsBefore {
	return conditionsBefore{
		ready:     get(from, infrav1.ClusterReadyCondition),
		available: get(from, infrav1.HypervisorAvailableCondition),
		endpoint:  get(from, infrav1.EndpointUniqueCondition),
	}
}

func get(from conditions.Getter, conditionType string) metav1.Condition {
	if c := conditions.Get(from, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// announce records events for the changes after they are written.
func (r *Reconciler[C]) announce(s *scope[C], before conditionsBefore) {
	_, status := s.infra.Common()
	orphanedVMs.WithLabelValues(r.kind, s.infra.GetNamespace(), s.infra.GetName()).Set(float64(status.OrphanedVMs.Count))
	if s.newOrphans != "" {
		r.event(s, corev1.EventTypeWarning, infrav1.OrphanFoundReason, s.newOrphans)
	}
	if s.released {
		r.event(s, corev1.EventTypeNormal, "Deleted", "All machines are deleted")
		return
	}
	now := snapshot(s.infra)
	if now.endpoint.Reason != "" && changed(before.endpoint, now.endpoint) {
		r.event(s, corev1.EventTypeWarning, now.endpoint.Reason, now.endpoint.Message)
	}
	if changed(before.available, now.available) {
		if now.available.Status == metav1.ConditionTrue {
			r.event(s, corev1.EventTypeNormal, infrav1.HypervisorAvailableReason, "The hypervisor can be reached")
		} else {
			r.event(s, corev1.EventTypeWarning, now.available.Reason, now.available.Message)
		}
	}
	if !changed(before.ready, now.ready) {
		return
	}
	switch now.ready.Reason {
	case infrav1.ClusterReadyReason:
		r.event(s, corev1.EventTypeNormal, infrav1.ClusterReadyReason, "Machines can be created")
	case infrav1.WaitingForEndpointReason, infrav1.WaitingForMachinesReason:
		if before.ready.Reason != now.ready.Reason {
			r.event(s, corev1.EventTypeNormal, now.ready.Reason, now.ready.Message)
		}
	case now.available.Reason: // reported above
	default:
		r.event(s, corev1.EventTypeWarning, now.ready.Reason, now.ready.Message)
	}
}

func changed(was, is metav1.Condition) bool {
	return was.Status != is.Status || was.Reason != is.Reason || was.Message != is.Message
}

// event records one event. The note is never used as a format string: it contains text from the
// hypervisor.
func (r *Reconciler[C]) event(s *scope[C], kind, reason, note string) {
	doing := "Reconcile"
	if s.deleting() {
		doing = "Delete"
	}
	r.Recorder.Eventf(s.infra, nil, kind, reason, doing, "%s", note)
}
