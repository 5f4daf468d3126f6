package controlplane

// event records what happened to the control plane. The action is what was
// being done.
func (r *Reconciler) event(s *scope, eventType, reason, action, note string) {
	r.Recorder.Eventf(s.controlPlane, nil, eventType, reason, action, "%s", note)
}
