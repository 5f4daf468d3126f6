package controlplane

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

// event records an event of the control plane. action is the operation that
// caused it.
func (r *Config) event(s *scope, eventType, reason, action, note string) {
	r.Recorder.Eventf(s.controlPlane, nil, eventType, reason, action, "%s", note)
}

// warn records an event for a failed operation.
func (r *Config) warn(s *scope, reason, action string, err error) {
	r.event(s, corev1.EventTypeWarning, reason, action, loop.Sentence(err))
}

func (r *Config) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}
