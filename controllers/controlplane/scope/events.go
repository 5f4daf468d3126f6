package scope

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// Event records an event of the control plane. action is the operation that
// caused it.
func (r *Config) Event(s *Scope, eventType, reason, action, note string) {
	r.Recorder.Eventf(s.ControlPlane, nil, eventType, reason, action, "%s", note)
}

// Warn records an event for a failed operation.
func (r *Config) Warn(s *Scope, reason, action string, err error) {
	r.Event(s, corev1.EventTypeWarning, reason, action, reconcile.Sentence(err))
}

// CurrentTime returns the time.
func (r *Config) CurrentTime() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}
