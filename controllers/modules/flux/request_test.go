package flux

import (
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRequestedAt(t *testing.T) {
	const earlier, first, second = "2030-01-01T11:00:00Z", "2030-01-01T12:00:00Z", "2030-01-01T12:00:07Z"
	at := func(text string) metav1.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return metav1.NewTime(parsed)
	}
	object := func(name string, status metav1.ConditionStatus, reason, since string, dependsOn ...string) *Object {
		return &Object{
			Object:             &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2}},
			observedGeneration: 2, dependsOn: dependsOn,
			conditions: []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, LastTransitionTime: at(since)}},
		}
	}
	waiting := func(change func(*Object)) *Object {
		p := object("web", metav1.ConditionFalse, fluxmeta.DependencyNotReadyReason, earlier, "dns", "cni")
		p.observedGeneration = -1 // kustomize-controller sets it after a success
		if change != nil {
			change(p)
		}
		return p
	}
	requested := func(value string) func(*Object) {
		return func(p *Object) {
			p.Object.SetAnnotations(map[string]string{fluxmeta.ReconcileRequestAnnotation: value})
		}
	}
	cni := object("cni", metav1.ConditionTrue, "x", first)
	dns := object("dns", metav1.ConditionTrue, "x", second)
	both := []*Object{cni, dns}
	oldGeneration := object("dns", metav1.ConditionTrue, "x", second)
	oldGeneration.observedGeneration = 1
	otherKind := object("dns", metav1.ConditionTrue, "x", second)
	otherKind.Object = &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Name: "dns", Generation: 2}}

	cases := map[string]struct {
		object *Object
		others []*Object
		want   string
	}{
		"New":                     {nil, both, ""},
		"AllReady":                {waiting(nil), both, second},
		"RequestedBefore":         {waiting(requested(earlier)), both, second},
		"RequestedAlready":        {waiting(requested(second)), both, second},
		"OneNotReady":             {waiting(nil), []*Object{cni, object("dns", metav1.ConditionFalse, "x", second)}, ""},
		"OneBeingChecked":         {waiting(requested(first)), []*Object{cni, object("dns", metav1.ConditionUnknown, "x", second)}, first},
		"OneAtAnOlderGeneration":  {waiting(nil), []*Object{cni, oldGeneration}, ""},
		"OneOfAnotherKind":        {waiting(nil), []*Object{cni, otherKind}, ""},
		"OneMissing":              {waiting(nil), []*Object{cni}, ""},
		"Suspended":               {waiting(func(p *Object) { p.Suspended = true }), both, ""},
		"ReadyBefore":             {waiting(func(p *Object) { p.readyBefore, p.observedGeneration = true, 2 }), both, ""},
		"ReadyBeforeAndRequested": {waiting(func(p *Object) { requested(first)(p); p.readyBefore, p.observedGeneration = true, 2 }), both, first},
		"Unseen":                  {waiting(func(p *Object) { p.conditions = nil }), both, ""},
		"Failed":                  {object("web", metav1.ConditionFalse, "BuildFailed", first, "cni"), both, ""},
		"Ready":                   {object("web", metav1.ConditionTrue, "x", first, "cni"), both, ""},
		"RequestedByUserWhenReady": {func() *Object {
			p := object("web", metav1.ConditionTrue, "x", first, "cni")
			requested("now")(p)
			return p
		}(), both, "now"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := RequestedAt(tc.object, tc.others); got != tc.want {
				t.Errorf("RequestedAt() = %q, want %q", got, tc.want)
			}
		})
	}
}
