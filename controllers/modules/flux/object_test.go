package flux

import (
	"testing"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestFluxObjectReady(t *testing.T) {
	condition := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, Message: message}}
	}
	cases := map[string]struct {
		object Object
		ready  bool
		why    string
	}{
		"Unseen":           {Object{}, false, "Waiting for Flux"},
		"OlderGeneration":  {Object{observedGeneration: 1, readyBefore: true, conditions: condition("True", "x", "")}, false, "Waiting for Flux"},
		"Ready":            {Object{observedGeneration: 2, conditions: condition("True", "x", "")}, true, ""},
		"First":            {Object{observedGeneration: 2, conditions: condition("Unknown", "Progressing", "Reconciliation in progress")}, false, "Reconciliation in progress"},
		"LookingAgain":     {Object{observedGeneration: 2, readyBefore: true, conditions: condition("Unknown", "Progressing", "x")}, true, ""},
		"DependencyLooked": {Object{observedGeneration: 2, readyBefore: true, conditions: condition("False", fluxmeta.DependencyNotReadyReason, "x")}, true, ""},
		"DependencyFirst":  {Object{observedGeneration: 2, conditions: condition("False", fluxmeta.DependencyNotReadyReason, "dependency not ready.")}, false, "dependency not ready"},
		"Broken":           {Object{observedGeneration: 2, readyBefore: true, conditions: condition("False", "HealthCheckFailed", "timeout after 31.5s waiting")}, false, "timeout after some time waiting"},
		"NoMessage":        {Object{observedGeneration: 2, conditions: condition("False", "Broken", "")}, false, "Broken"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.object.Object = &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			if ready, why := tc.object.Ready(); ready != tc.ready || why != tc.why {
				t.Errorf("ready() = %t %q, want %t %q", ready, why, tc.ready, tc.why)
			}
		})
	}
}

// A module that Flux checks again stays ready. A module whose new generation Flux checks for the first
// time does not become ready by the state of the previous generation.
func TestReadyObjects(t *testing.T) {
	cluster := client.ObjectKey{Namespace: "ns", Name: "c"}
	var s ReadyObjects
	look := func(generation int64, status metav1.ConditionStatus) bool {
		p := &Object{
			Object:             &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: generation}},
			observedGeneration: generation,
			conditions:         []metav1.Condition{{Type: "Ready", Status: status, Reason: "Progressing"}},
		}
		s.MarkReadyBefore(cluster, map[client.ObjectKey][]*Object{{}: {p}})
		ready, _ := p.Ready()
		return ready
	}
	for i, step := range []struct {
		generation int64
		status     metav1.ConditionStatus
		want       bool
	}{
		{1, metav1.ConditionUnknown, false},
		{1, metav1.ConditionTrue, true},
		{1, metav1.ConditionUnknown, true},
		{2, metav1.ConditionUnknown, false},
		{2, metav1.ConditionTrue, true},
		{2, metav1.ConditionFalse, false},
		{2, metav1.ConditionUnknown, false},
	} {
		if got := look(step.generation, step.status); got != step.want {
			t.Errorf("step %d: ready = %t, want %t", i, got, step.want)
		}
	}
	s.MarkReadyBefore(cluster, nil)
	if s.Len() != 0 {
		t.Errorf("a deleted object is remembered: %v", s.All())
	}
}
