package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// ExpiryWindowTooLong reports whether ExpiryWindow is as long as the lifetime of
// certificates, so that each new machine would be replaced at once.
// ExpiryWindow is ignored then. The age of a machine does not show the
// lifetime: after a move to another management cluster all machines are young.
func ExpiryWindowTooLong(in Input) bool {
	return in.CertificateLifetime > 0 && in.ExpiryWindow > in.CertificateLifetime-timelimits.Daily
}

// expiryWindow returns ExpiryWindow, or 0 if it is ignored.
func expiryWindow(in Input) time.Duration {
	if ExpiryWindowTooLong(in) {
		return 0
	}
	return in.ExpiryWindow
}

// Outdated returns why a machine is to be replaced, for users: settings in
// which it differs from the spec, rollout.after and expiring certificates.
func Outdated(in Input, m Machine) []string {
	why := append([]string(nil), m.Differs...)
	if !in.RolloutAfter.IsZero() && !in.RolloutAfter.After(in.Now) && m.Created.Before(in.RolloutAfter) {
		why = append(why, "it was created before rollout.after")
	}
	if expiresSoon(in, m) {
		why = append(why, "its certificates expire soon")
	}
	if failed := updateFailed(in, m); failed != "" {
		why = append(why, failed)
	}
	return why
}

// expiresSoon reports whether the certificates of a machine are to be renewed, or the
// machine is to be replaced.
func expiresSoon(in Input, m Machine) bool {
	w := expiryWindow(in)
	return w > 0 && !m.CertificatesExpire.IsZero() && m.CertificatesExpire.Before(in.Now.Add(w))
}

// renewCertificates returns the time before which certificates of a machine must not
// end; zero if they do not expire soon. It is later than the end of the window: the new
// expiry is observed some hours later.
func renewCertificates(in Input, m Machine) time.Time {
	if !expiresSoon(in, m) {
		return time.Time{}
	}
	return in.Now.Add(expiryWindow(in) + timelimits.Daily)
}

// updateFailed returns why a machine whose change in place did not end is to be
// replaced, for users.
func updateFailed(in Input, m Machine) string {
	if in.InPlace == Only || !updateLate(in, m) {
		return ""
	}
	return "its change in place did not end: " + cmp.Or(m.UpdateProgress, notBegun(m))
}

// notBegun returns why a change has no progress, for users.
func notBegun(m Machine) string {
	if m.UpdateBegun {
		return "Cluster API has not begun it"
	}
	return "its objects could not be changed"
}

// updateLate reports whether the time for the change of a machine, or for its
// begin, is over.
func updateLate(in Input, m Machine) bool {
	if !m.Updating || m.UpdatingSince.IsZero() {
		return m.UpdateBegun // with a time that is not readable
	}
	return !in.Now.Before(updateDeadline(in, m))
}

// updateDeadline returns when the time for the change of a machine ends.
func updateDeadline(in Input, m Machine) time.Time {
	return m.UpdatingSince.Add(in.Limits.UpdateTimeout)
}

// onlyChangeable reports whether a machine is outdated only because it differs from
// the spec, or because of certificates that can be renewed: a change in place may be
// enough.
func onlyChangeable(in Input, m Machine) bool {
	changeable := len(m.Differs)
	if renewable(in, m) {
		changeable++
	}
	return len(Outdated(in, m)) == changeable
}

// renewable reports whether certificates that expire soon are renewed in place. They
// wait for no other change: then the machine is replaced.
func renewable(in Input, m Machine) bool {
	return expiresSoon(in, m) && len(m.NeedReplacement) == 0 &&
		!slices.ContainsFunc(in.Machines, func(o Machine) bool { return updateLate(in, o) })
}

// replaced reports whether an outdated machine is to be replaced in any mode: with
// Only, a reason that a change in place may remove is none.
func replaced(in Input, m Machine) bool {
	return len(Outdated(in, m)) > 0 && (in.InPlace != Only || !onlyChangeable(in, m))
}
