package status

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// reportLastRemediation copies the remediation from the annotation, which survives
// a move to another management cluster, into the status.
func reportLastRemediation(s *scope.Scope) {
	last := input.LastRemediation(s.ControlPlane)
	if last == nil {
		return
	}
	s.ControlPlane.Status.LastRemediation = controlplanev1.LastRemediationStatus{
		Machine: last.Machine, Time: ptr.To(metav1.NewTime(last.At)), RetryCount: ptr.To(int32(last.Retries)),
	}
}

// Waits returns why the next change waits, for users; empty if it does not.
func Waits(s *scope.Scope) string {
	switch {
	case s.Decision.Hold != "":
		return s.Decision.Hold
	case s.Blocked != "":
		return s.Blocked
	case s.Decision.Action == plan.Wait, s.Decision.MovesEndpoint:
		return s.Decision.Reason
	default:
		return ""
	}
}

func rollingOutCondition(s *scope.Scope) metav1.Condition {
	if s.Pending(controlplanev1.RollingOutCondition) {
		return metav1.Condition{}
	}
	c := metav1.Condition{Type: controlplanev1.RollingOutCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotRollingOutReason}
	var names []string
	for _, change := range input.Changes(s) {
		names = append(names, named(change.Machine, change.Text))
	}
	switch {
	case !s.ControlPlane.DeletionTimestamp.IsZero():
		return c
	case len(names) == 0:
		c.Message = expiryWindowTooLong(s)
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.RollingOutReason
	if s.UpgradeWaits != "" && s.Decision.Hold == "" && !s.Requirements.RestoresUnknown {
		c.Reason = controlplanev1.RollingOutWaitingForSnapshotReason
	}
	outdated := fmt.Sprintf("%d of %d machines are not up to date: %s", len(names), len(s.Machines), plan.Shorten(names))
	switch {
	case s.ControlPlane.Spec.Rollout.IsPaused():
		c.Reason, c.Message = controlplanev1.RollingOutPausedReason, "Paused by spec.rollout.paused. "+outdated
		return c
	case s.ControlPlane.Spec.Rollout.Strategy.GetType() == controlplanev1.OnDeleteStrategy:
		c.Message = outdated
		return c
	}
	c.Message = fmt.Sprintf("Rolling out %d of %d machines that are not up to date: %s", len(names), len(s.Machines), plan.Shorten(names))
	if why := Waits(s); why != "" {
		c.Message += ". " + why
	}
	return c
}

// expiryWindowTooLong returns the message that a rollout by certificate expiry would never
// end and does not begin.
func expiryWindowTooLong(s *scope.Scope) string {
	if !plan.ExpiryWindowTooLong(input.Of(s, s.At)) {
		return ""
	}
	return fmt.Sprintf("spec.rollout.before.certificatesExpiryDays is ignored: certificates last %.0f days, so %d days before they expire each new machine would be replaced at once",
		s.Lifetime.Hours()/24, s.ControlPlane.Spec.Rollout.Before.CertificatesExpiryDays)
}

func scalingUpCondition(s *scope.Scope, err error) metav1.Condition {
	if s.Pending(controlplanev1.ScalingUpCondition) {
		return metav1.Condition{}
	}
	is, want := len(s.Machines), int(s.ControlPlane.GetReplicas())
	if is >= want || !s.ControlPlane.DeletionTimestamp.IsZero() {
		return metav1.Condition{
			Type: controlplanev1.ScalingUpCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotScalingUpReason,
		}
	}
	c := metav1.Condition{
		Type: controlplanev1.ScalingUpCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.ScalingUpReason,
		Message: fmt.Sprintf("Scaling up from %d to %d replicas", is, want),
	}
	switch why := Waits(s); {
	case why != "" && why == s.Blocked:
		c.Message += " is blocked: " + why
	case why != "":
		// Usually the wait for the previous machine, which is no problem.
		c.Message += ". " + why
	case err != nil:
		c.Message += " failed: " + err.Error()
	}
	return c
}

func scalingDownCondition(s *scope.Scope) metav1.Condition {
	if s.Pending(controlplanev1.ScalingDownCondition) {
		return metav1.Condition{}
	}
	is, want := len(s.Machines), int(s.ControlPlane.GetReplicas())
	if is <= want || !s.ControlPlane.DeletionTimestamp.IsZero() {
		return metav1.Condition{
			Type: controlplanev1.ScalingDownCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotScalingDownReason,
		}
	}
	c := metav1.Condition{
		Type: controlplanev1.ScalingDownCondition, Status: metav1.ConditionTrue, Reason: controlplanev1.ScalingDownReason,
		Message: fmt.Sprintf("Scaling down from %d to %d replicas", is, want),
	}
	if why := Waits(s); why != "" {
		c.Message += ". " + why
	}
	return c
}

func remediatingCondition(s *scope.Scope) metav1.Condition {
	if s.Pending(controlplanev1.RemediatingCondition) {
		return metav1.Condition{}
	}
	c := metav1.Condition{Type: controlplanev1.RemediatingCondition, Status: metav1.ConditionFalse, Reason: controlplanev1.NotRemediatingReason}
	if !s.ControlPlane.DeletionTimestamp.IsZero() || s.Cluster == nil {
		return c
	}
	in := input.Of(s, s.At)
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
	case s.Decision.LimitReached:
		c.Reason, c.Message = controlplanev1.RemediationLimitReachedReason, s.Decision.Reason
	case len(going) > 0:
		c.Message = "Replacing " + plan.Shorten(going)
		if why := Waits(s); why != "" {
			c.Message += ". " + why
		}
	case Waits(s) != "":
		c.Reason, c.Message = controlplanev1.RemediationDeferredReason, Waits(s)
	default:
		c.Message = "Replacing " + plan.Shorten(sick)
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
