package modules

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// report writes the set's status and records events for the changes.
func (r *SetReconciler) report(f *setScope, failure error) {
	before := map[string]metav1.Condition{}
	for _, c := range f.set.Status.Conditions {
		before[c.Type] = c
	}
	now := []metav1.Condition{f.valid(), f.rollingOut(), f.ready(failure)}
	if f.set.DeletionTimestamp.IsZero() {
		f.counts()
	} else {
		now = now[2:]
	}
	for _, c := range now {
		conditions.Set(f.set, c)
		if was := before[c.Type]; was.Reason != c.Reason && (was.Reason != "" || c.Reason == addonsv1.InvalidReason) {
			r.Recorder.Eventf(f.set, nil, eventType(c.Reason), c.Reason, c.Type, "%s", cmp.Or(c.Message, defaultNotes[c.Reason]))
		}
	}
}

func eventType(reason string) string {
	switch reason {
	case addonsv1.InvalidReason, addonsv1.BudgetExceededReason:
		return corev1.EventTypeWarning
	default:
		return corev1.EventTypeNormal
	}
}

// defaultNotes holds the notes of events for conditions without a message.
var defaultNotes = map[string]string{
	addonsv1.ReadyReason:         "All modules are ready on all Clusters",
	addonsv1.NotRollingOutReason: "No rollout is in progress",
	addonsv1.ValidReason:         "The set is valid",
}

// counts sets the numbers in the status. While reports of some Clusters are missing, the last numbers
// stay.
func (f *setScope) counts() {
	s := &f.set.Status
	s.ObservedGeneration = f.set.Generation
	s.Clusters = ptr.To(int32(len(f.members)))
	if f.invalid != nil {
		return
	}
	s.Revision = f.content.Revision()
	if f.withoutReport > 0 {
		return
	}
	s.ReadyClusters, s.UpdatedClusters = ptr.To(int32(f.plan.Ready)), ptr.To(int32(f.plan.Updated))
	s.FailedClusters, s.Wave = ptr.To(int32(len(f.plan.Failed))), f.plan.Wave
	for state, n := range map[string]int{
		"selected": len(f.members), "updated": f.plan.Updated, "ready": f.plan.Ready, "failed": len(f.plan.Failed),
	} {
		clusters.WithLabelValues(f.set.Namespace, f.set.Name, state).Set(float64(n))
	}
}

func (f *setScope) valid() metav1.Condition {
	if f.invalid != nil {
		return metav1.Condition{Type: addonsv1.ValidCondition, Status: metav1.ConditionFalse, Reason: addonsv1.InvalidReason, Message: reconcile.Sentence(f.invalid)}
	}
	return metav1.Condition{Type: addonsv1.ValidCondition, Status: metav1.ConditionTrue, Reason: addonsv1.ValidReason}
}

func (f *setScope) rollingOut() metav1.Condition {
	c := metav1.Condition{Type: addonsv1.RollingOutCondition, Status: metav1.ConditionFalse, Reason: addonsv1.NotRollingOutReason}
	if f.invalid != nil || f.withoutReport > 0 || f.plan.Done || len(f.members) == 0 {
		if f.plan.Done {
			c.Message = f.waiting()
		}
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, addonsv1.RollingOutReason
	c.Message = fmt.Sprintf("%d of %d Clusters are at the current revision", f.plan.Updated, len(f.members))
	if f.plan.Wave != "" {
		c.Message += ", wave " + f.plan.Wave + " is in progress"
	}
	c.Message += f.paused()
	if waiting := f.waiting(); waiting != "" {
		c.Message += "; " + waiting
	}
	switch {
	case f.plan.Halted == "":
	case len(f.plan.Failed) > 0:
		c.Reason, c.Message = addonsv1.BudgetExceededReason, c.Message+"; stopped: "+f.plan.Halted
	default:
		c.Reason, c.Message = addonsv1.RolloutSuspendedReason, c.Message+"; suspended"
	}
	return c
}

func (f *setScope) ready(failure error) metav1.Condition {
	c := metav1.Condition{Type: addonsv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: addonsv1.NotReadyReason}
	switch {
	case failure != nil:
		c.Message = reconcile.Sentence(failure)
	case !f.set.DeletionTimestamp.IsZero():
		c.Reason, c.Message = addonsv1.DeletingReason, fmt.Sprintf("Waiting for the modules of %d Clusters to be removed", f.remaining)+f.dependents()
	case f.invalid != nil:
		c.Reason, c.Message = addonsv1.InvalidReason, reconcile.Sentence(f.invalid)
	case ptr.Deref(f.set.Spec.Suspend, false):
		c.Reason, c.Message = addonsv1.SuspendedReason, "The set is suspended"
	case len(f.members) == 0:
		c.Reason, c.Message = addonsv1.NoClustersReason, "No Cluster is selected"+f.forbiddenClusters()
	case f.withoutReport > 0:
		c.Status, c.Message = metav1.ConditionUnknown, fmt.Sprintf("Evaluating %d Clusters", f.withoutReport)
	case f.plan.Ready == len(f.members):
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, addonsv1.ReadyReason, strings.TrimPrefix(f.forbiddenClusters(), "; ")
	default:
		c.Message = fmt.Sprintf("%d of %d Clusters are ready, not ready: %s%s", f.plan.Ready, len(f.members), f.unready(), f.forbiddenClusters())
	}
	return c
}

// dependents names the sets whose modules are removed before those of this set.
func (f *setScope) dependents() string {
	if sets := f.dependencies.dependents(f.key()); len(sets) > 0 {
		return "; before them those of the sets that depend on this set: " + listed(namesOf(sets))
	}
	return ""
}

// unready names the Clusters whose modules are not all ready at the current revision.
func (f *setScope) unready() string {
	var names []string
	for i := range f.members {
		m := &f.members[i]
		if m.Revision != f.content.Revision() || !m.Ready {
			names = append(names, m.Key.String())
		}
	}
	return listed(names)
}

// waiting names the Clusters whose first modules are written after those of another set.
func (f *setScope) waiting() string {
	var names []string
	for i := range f.members {
		if m := &f.members[i]; m.Waiting && m.Revision == "" {
			names = append(names, m.Key.String())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d Clusters get their first modules after those of another set: %s", len(names), len(f.members), listed(names))
}

// paused names the Clusters that were paused before they reached the current revision.
func (f *setScope) paused() string {
	var names []string
	revision := f.content.Revision()
	for i := range f.members {
		if m := &f.members[i]; m.Paused && m.Revision != revision {
			names = append(names, m.Key.String())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; paused Clusters are updated after they are resumed: " + listed(names)
}

// forbiddenClusters names the Clusters whose namespace does not allow the set.
func (f *setScope) forbiddenClusters() string {
	if len(f.forbidden) == 0 {
		return ""
	}
	return fmt.Sprintf("; %d Clusters are not selected, because their namespaces do not allow it with the annotation %s: first %s",
		len(f.forbidden), addonsv1.AllowFromAnnotation, f.forbidden[0])
}
