package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// unapplied is a setting that is not carried out, with the reason and the
// message of the condition SettingsApplied.
type unapplied struct{ reason, message string }

// notApplied reports a setting that is not carried out, with an event when that
// changes.
func (r *upgrader) notApplied(s *scope, reason, message string) {
	if slices.Contains(s.unapplied, unapplied{reason, message}) {
		return
	}
	s.unapplied = append(s.unapplied, unapplied{reason, message})
	if c := conditions.Get(s.controlPlane, controlplanev1.SettingsAppliedCondition); c == nil || !strings.Contains(c.Message, message) {
		r.event(s, corev1.EventTypeWarning, reason, "ApplySettings", message)
	}
}

// reportAltered reports machines that another controller or an admission policy
// altered. They are not replaced: their replacements would be altered too, and
// be replaced in an endless loop.
func (r *upgrader) reportAltered(_ context.Context, s *scope) error {
	var names []string
	for _, machine := range s.sorted() {
		if fields := s.altered[machine.Name]; len(fields) > 0 && machine.DeletionTimestamp.IsZero() {
			names = append(names, fmt.Sprintf("%s (%s)", machine.Name, strings.Join(fields, ", ")))
		}
	}
	if len(names) > 0 {
		r.notApplied(s, controlplanev1.SettingsMachinesAlteredReason, fmt.Sprintf(
			"Machines are not as they were created from the spec: %s. Another controller or an admission policy altered them and would alter their replacements, so they are not replaced: exempt them there, then set rollout.after",
			shorten(names)))
	}
	return nil
}

func settingsCondition(s *scope) metav1.Condition {
	c := metav1.Condition{
		Type: controlplanev1.SettingsAppliedCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.SettingsAppliedReason,
	}
	if len(s.unapplied) == 0 {
		if s.initialized && !s.workload.Answers && conditions.Has(s.controlPlane, c.Type) {
			// Only the workload cluster has this information.
			return metav1.Condition{}
		}
		return c
	}
	c.Status = metav1.ConditionFalse
	var messages []string
	for _, u := range s.unapplied {
		messages = append(messages, u.message)
	}
	c.Reason, c.Message = s.unapplied[0].reason, strings.Join(messages, "; ")
	return c
}
