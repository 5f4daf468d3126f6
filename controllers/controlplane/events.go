package controlplane

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

// event records what happened to the control plane. The action is what was
// being done.
func (r *Reconciler) event(s *scope, eventType, reason, action, note string) {
	r.Recorder.Eventf(s.controlPlane, nil, eventType, reason, action, "%s", note)
}

// complain records what was not done, in words for people.
func (r *Reconciler) complain(s *scope, reason, action string, err error) {
	r.event(s, corev1.EventTypeWarning, reason, action, loop.Sentence(err))
}
