package plan

import (
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
	if w := expiryWindow(in); w > 0 && !m.CertificatesExpire.IsZero() && m.CertificatesExpire.Before(in.Now.Add(w)) {
		why = append(why, "its certificates expire soon")
	}
	return why
}
