package bootstrap

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// report sets the status from the result of the reconcile. It is the only place that sets conditions,
// except for Paused.
func (s *scope) report(err error) {
	s.config.Status.ObservedGeneration = s.config.Generation
	if s.available() {
		s.config.Status.DataSecretName = s.config.Name
		s.config.Status.Initialization.DataSecretCreated = ptr.To(true)
	}
	c := s.condition(err)
	conditions.Set(s.config, c)
	c.Type = bootstrapv1.ReadyCondition
	if c.Status == metav1.ConditionTrue {
		c.Reason = bootstrapv1.ReadyReason
	}
	conditions.Set(s.config, c)
}

// available reports whether the data exists or was used.
func (s *scope) available() bool { return s.secret != nil || s.action == publish }

func (s *scope) condition(err error) metav1.Condition {
	c := metav1.Condition{Type: bootstrapv1.DataSecretAvailableCondition, Status: metav1.ConditionFalse}
	switch {
	case err != nil:
		c.Reason, c.Message = bootstrapv1.InternalErrorReason, reconcile.Sentence(err)
	case s.blocked != nil:
		return s.blocked.Condition(c.Type)
	case s.action == waitForInfrastructure:
		c.Reason, c.Message = bootstrapv1.WaitingForInfrastructureReason, "Waiting until the cluster's infrastructure is provisioned"
	case s.action == waitForEndpoint:
		c.Reason, c.Message = bootstrapv1.WaitingForEndpointReason, "Waiting until the control plane endpoint of the Cluster is set"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, bootstrapv1.DataSecretAvailableReason
	}
	return c
}

// reported returns a copy of the condition, which is empty if it is not set. The one that
// conditions.Get returns is changed by conditions.Set.
func (s *scope) reported() metav1.Condition {
	return ptr.Deref(conditions.Get(s.config, bootstrapv1.DataSecretAvailableCondition), metav1.Condition{})
}

// announce records events for the changes after they are written.
func (r *Reconciler) announce(s *scope, before metav1.Condition) {
	now := s.reported()
	if s.refreshed {
		r.event(s, corev1.EventTypeNormal, "DataSecretRefreshed", "The bootstrap data was renewed with a new certificate")
	}
	if now.Reason == before.Reason && now.Message == before.Message {
		return
	}
	switch {
	case now.Status == metav1.ConditionTrue:
		r.event(s, corev1.EventTypeNormal, "DataSecretCreated", "The bootstrap data is available")
	case s.blocked != nil && !s.blocked.Waiting, now.Reason == bootstrapv1.InternalErrorReason:
		r.event(s, corev1.EventTypeWarning, now.Reason, now.Message)
	}
}

// event records one event. The note is never used as a format string: it contains text from users.
func (r *Reconciler) event(s *scope, kind, reason, note string) {
	doing := s.action
	if doing == "" {
		doing = "Read"
	}
	r.Recorder.Eventf(s.config, nil, kind, reason, string(doing), "%s", note)
}
