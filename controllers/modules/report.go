package modules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/event"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/flux"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// maxListed is the maximum number of modules that a condition names.
const maxListed = 5

// reportCondition sets the set's condition on the Cluster and reports to the set.
func (r *ClusterReconciler) reportCondition(d *rolloutTarget, failure error) {
	c := d.condition(failure)
	// The condition that Get returns is changed by Set.
	var status metav1.ConditionStatus
	var reason string
	if before := conditions.Get(d.scope.cluster, c.Type); before != nil {
		status, reason = before.Status, before.Reason
	}
	conditions.Set(d.scope.cluster, c)
	if status != c.Status || reason != c.Reason {
		eventType := corev1.EventTypeNormal
		if slices.Contains([]string{addonsv1.InvalidReason, addonsv1.ClusterUnreachableReason, addonsv1.FluxNotInstalledReason, addonsv1.NameConflictReason, addonsv1.ManagementForbiddenReason, addonsv1.FactsUnreadableReason, addonsv1.SourceNotFetchedReason}, c.Reason) {
			eventType = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(d.scope.cluster, d.set, eventType, c.Reason, "Deliver", "%s: %s", d.key.Name, cmp.Or(c.Message, "All modules are ready"))
	}
	if r.rollouts.setReport(d.key, d.scope.key, d.clusterReport(c.Status == metav1.ConditionTrue)) {
		r.enqueueSet(d.key)
	}
}

// clusterReport returns the report about the Cluster for the set. well means that nothing is wrong and
// nothing is pending.
func (d *rolloutTarget) clusterReport(healthy bool) clusterReport {
	has, newest, since := flux.Revisions(d.objects)
	content := modules.ContentOf(&d.set.Spec)
	current := content.Revision()
	now := clusterReport{
		revision: newest, since: since, ready: healthy && len(has) == 1, notReady: len(d.order),
		reachable: d.scope.unreachable == nil && d.reason != addonsv1.WaitingForControlPlaneReason,
		paused:    d.scope.paused(), waiting: d.reason == addonsv1.WaitingForSetReason, pending: d.pending, unrenderable: d.unrenderable,
	}
	switch {
	case slices.Contains(has, current):
		now.revision = current // the Cluster is changing to it
	case healthy && len(d.objects) == 0:
		// All modules are disabled here, so no module is missing.
		now.revision, now.ready = current, true
	}
	return now
}

// condition returns one condition for the state of the modules.
func (d *rolloutTarget) condition(failure error) metav1.Condition {
	c := metav1.Condition{Type: addonsv1.ClusterCondition(d.setName()), Status: metav1.ConditionFalse}
	switch {
	case failure != nil:
		c.Reason, c.Message = addonsv1.NotReadyReason, reconcile.Sentence(failure)
	case d.reason != "":
		c.Reason, c.Message = d.reason, d.message
		if len(d.order) > 0 && d.reason != addonsv1.InvalidReason {
			c.Message += "; " + d.summary()
		}
	case len(d.order) > 0:
		c.Reason, c.Message = addonsv1.NotReadyReason, d.summary()
	default:
		c.Status, c.Reason = metav1.ConditionTrue, addonsv1.ReadyReason
	}
	return c
}

// setReasonForPause records why nothing is written, if the modules themselves do not show it.
func (d *rolloutTarget) setReasonForPause(suspended bool) {
	switch {
	case suspended:
		d.reason, d.message = addonsv1.SuspendedReason, "The set is suspended"
	case len(d.objects) == 0:
		d.reason, d.message = addonsv1.ClusterPausedReason, "The Cluster is paused: its modules are written after it is resumed"
	}
}

// summary names the modules that are not ready.
func (d *rolloutTarget) summary() string {
	var parts []string
	for _, name := range d.order[:min(len(d.order), maxListed)] {
		parts = append(parts, name+": "+d.notReady[name])
	}
	text := fmt.Sprintf("%d of %d modules are not ready: %s", len(d.order), d.count, strings.Join(parts, "; "))
	if more := len(d.order) - maxListed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// enqueueSet triggers a reconcile of a set.
func (r *ClusterReconciler) enqueueSet(set key) {
	o := &addonsv1.NovaModuleSet{}
	o.Namespace, o.Name = set.Namespace, set.Name
	r.sets <- event.GenericEvent{Object: o}
}
