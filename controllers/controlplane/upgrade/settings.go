package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// notApplied reports a setting that is not carried out, with an event when that
// changes.
func (r *Upgrader) notApplied(s *scope.Scope, reason, message string) {
	if slices.Contains(s.Unapplied, scope.Unapplied{Reason: reason, Message: message}) {
		return
	}
	s.Unapplied = append(s.Unapplied, scope.Unapplied{Reason: reason, Message: message})
	if c := conditions.Get(s.ControlPlane, controlplanev1.SettingsAppliedCondition); c == nil || !strings.Contains(c.Message, message) {
		r.Event(s, corev1.EventTypeWarning, reason, "ApplySettings", message)
	}
}

// ReportAltered reports machines that another controller or an admission policy
// altered. They are not replaced: their replacements would be altered too, and
// be replaced in an endless loop.
func (r *Upgrader) ReportAltered(_ context.Context, s *scope.Scope) error {
	var names []string
	for _, machine := range s.Sorted() {
		if fields := s.Altered[machine.Name]; len(fields) > 0 && machine.DeletionTimestamp.IsZero() {
			names = append(names, fmt.Sprintf("%s (%s)", machine.Name, strings.Join(fields, ", ")))
		}
	}
	if len(names) > 0 {
		r.notApplied(s, controlplanev1.SettingsMachinesAlteredReason, fmt.Sprintf(
			"Machines are not as they were created from the spec: %s. Another controller or an admission policy altered them and would alter their replacements, so they are not replaced: exempt them there, then set rollout.after",
			plan.Shorten(names)))
	}
	return nil
}

// SettingsCondition reports the settings that are not carried out.
func SettingsCondition(s *scope.Scope) metav1.Condition {
	c := metav1.Condition{
		Type: controlplanev1.SettingsAppliedCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.SettingsAppliedReason,
	}
	if len(s.Unapplied) == 0 {
		if s.Initialized && !s.Workload.Answers && conditions.Has(s.ControlPlane, c.Type) {
			// Only the workload cluster has this information.
			return metav1.Condition{}
		}
		return c
	}
	c.Status = metav1.ConditionFalse
	var messages []string
	for _, u := range s.Unapplied {
		messages = append(messages, u.Message)
	}
	c.Reason, c.Message = s.Unapplied[0].Reason, strings.Join(messages, "; ")
	return c
}
