package flux

import (
	"slices"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// RequestedAt returns the value of the annotation reconcile.fluxcd.io/requestedAt that an object must have,
// or an empty string if it needs none. all are the objects of its set on its Cluster.
//
// Flux does not watch dependencies: it checks them again only after its interval --requeue-dependency. A new
// value of the annotation makes it check at once. The value is the time at which the last dependency became
// ready, so that a repeated reconcile writes nothing. An object that was ready before at its generation waits
// for Flux' interval: nothing is written while nothing changes.
func RequestedAt(p *Object, all []*Object) string {
	if p == nil {
		return ""
	}
	has := p.Object.GetAnnotations()[fluxmeta.ReconcileRequestAnnotation]
	c := meta.FindStatusCondition(p.conditions, clusterv1.ReadyCondition)
	if ready, _ := p.Ready(); ready || p.Suspended || len(p.dependsOn) == 0 || c == nil || c.Reason != fluxmeta.DependencyNotReadyReason {
		return has
	}
	var last time.Time
	for _, name := range p.dependsOn {
		i := slices.IndexFunc(all, func(o *Object) bool { return o.Kind() == p.Kind() && o.Object.GetName() == name })
		if i < 0 {
			return has
		}
		since, ready := all[i].readySince()
		if !ready {
			return has
		}
		if since.After(last) {
			last = since
		}
	}
	return last.UTC().Format(time.RFC3339)
}

// readySince returns since when Flux considers an object ready for those that depend on it.
func (p *Object) readySince() (since time.Time, ready bool) {
	c := meta.FindStatusCondition(p.conditions, clusterv1.ReadyCondition)
	if c == nil || c.Status != metav1.ConditionTrue || p.observedGeneration != p.Object.GetGeneration() {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}
