package controlplane

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
)

// reportRemediation copies the remediation from the annotation, which survives
// a move to another management cluster, into the status.
func (s *scope) reportRemediation() {
	last := lastRemediation(s.controlPlane)
	if last == nil {
		return
	}
	s.controlPlane.Status.LastRemediation = controlplanev1.LastRemediationStatus{
		Machine: last.Machine, Time: ptr.To(metav1.NewTime(last.At)), RetryCount: ptr.To(int32(last.Retries)),
	}
}

// waits returns why the next change waits, for users; empty if it does not.
func waits(s *scope) string {
	switch {
	case s.waiting != "":
		return s.waiting
	case s.blocked != "":
		return s.blocked
	case s.decision.Action == plan.Wait:
		return s.decision.Reason
	default:
		return ""
	}
}

func rollingOutCondition(s *scope) metav1.Condition {
	if s.pending(controlplanev1.RollingOutCondition) {
		return metav1.Condition{}
	}
	c := metav1.Condition{Type: controlplanev1.RollingOutCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotRollingOutReason}
	var names []string
	for _, machine := range s.sorted() {
		if diff := s.outdated[machine.Name]; len(diff) > 0 {
			names = append(names, fmt.Sprintf("%s (%s)", machine.Name, strings.Join(diff, ", ")))
		}
	}
	switch {
	case !s.controlPlane.DeletionTimestamp.IsZero():
		return c
	case len(names) == 0:
		c.Message = expiryWindowTooLong(s)
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.RollingOutReason
	if s.upgradeWaits != "" {
		c.Reason = controlplanev1.RollingOutWaitingForSnapshotReason
	}
	c.Message = fmt.Sprintf("Rolling out %d of %d machines that are not up to date: %s", len(names), len(s.machines), shorten(names))
	if s.controlPlane.Spec.Rollout.Strategy.GetType() == controlplanev1.OnDeleteStrategy {
		c.Message = "Machines that are not up to date are replaced when they are deleted: " + shorten(names)
		return c
	}
	if why := waits(s); why != "" {
		c.Message += ". " + why
	}
	return c
}

// expiryWindowTooLong returns the message that a rollout by certificate expiry would never
// end and does not begin.
func expiryWindowTooLong(s *scope) string {
	if !plan.ExpiryWindowTooLong(input(s, s.at)) {
		return ""
	}
	return fmt.Sprintf("spec.rollout.before.certificatesExpiryDays is ignored: certificates last %.0f days, so %d days before they expire each new machine would be replaced at once",
		s.lifetime.Hours()/24, s.controlPlane.Spec.Rollout.Before.CertificatesExpiryDays)
}

func scalingUpCondition(s *scope, err error) metav1.Condition {
	if s.pending(controlplanev1.ScalingUpCondition) {
		return metav1.Condition{}
	}
	is, want := len(s.machines), int(s.controlPlane.GetReplicas())
	if is >= want || !s.controlPlane.DeletionTimestamp.IsZero() {
		return metav1.Condition{
			Type: controlplanev1.ScalingUpCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotScalingUpReason,
		}
	}
	c := metav1.Condition{
		Type: controlplanev1.ScalingUpCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.ScalingUpReason,
		Message: fmt.Sprintf("Scaling up from %d to %d replicas", is, want),
	}
	switch why := waits(s); {
	case why != "" && why == s.blocked:
		c.Message += " is blocked: " + why
	case why != "":
		// Usually the wait for the previous machine, which is no problem.
		c.Message += ". " + why
	case err != nil:
		c.Message += " failed: " + err.Error()
	}
	return c
}

func scalingDownCondition(s *scope) metav1.Condition {
	if s.pending(controlplanev1.ScalingDownCondition) {
		return metav1.Condition{}
	}
	is, want := len(s.machines), int(s.controlPlane.GetReplicas())
	if is <= want || !s.controlPlane.DeletionTimestamp.IsZero() {
		return metav1.Condition{
			Type: controlplanev1.ScalingDownCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotScalingDownReason,
		}
	}
	c := metav1.Condition{
		Type: controlplanev1.ScalingDownCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.ScalingDownReason,
		Message: fmt.Sprintf("Scaling down from %d to %d replicas", is, want),
	}
	if why := waits(s); why != "" {
		c.Message += ". " + why
	}
	return c
}

func remediatingCondition(s *scope) metav1.Condition {
	if s.pending(controlplanev1.RemediatingCondition) {
		return metav1.Condition{}
	}
	c := metav1.Condition{Type: controlplanev1.RemediatingCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotRemediatingReason}
	if !s.controlPlane.DeletionTimestamp.IsZero() || s.cluster == nil {
		return c
	}
	in := input(s, s.at)
	var sick, going []string
	for _, m := range in.Machines {
		why := plan.UnhealthyReason(in, m)
		switch {
		case m.Deleting && (why != "" || in.LastRemediation != nil && in.LastRemediation.Machine == m.Name):
			going = append(going, named(m.Name, why))
		case why != "":
			sick = append(sick, named(m.Name, why))
		}
	}
	if len(sick)+len(going) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.RemediatingReason
	switch {
	case s.decision.LimitReached:
		c.Reason, c.Message = controlplanev1.RemediationLimitReachedReason, s.decision.Reason
	case len(going) > 0:
		c.Message = "Replacing " + shorten(going)
		if why := waits(s); why != "" {
			c.Message += ". " + why
		}
	case waits(s) != "":
		c.Reason, c.Message = controlplanev1.RemediationDeferredReason, waits(s)
	default:
		c.Message = "Replacing " + shorten(sick)
	}
	return c
}

// named returns a machine's name with a reason.
func named(machine, why string) string {
	if why == "" {
		return machine
	}
	return fmt.Sprintf("%s (%s)", machine, why)
}
