package plan

import "time"

// leastLife is how long a new machine has to be up to date: a rollout that is
// due again when it is through never ends.
const leastLife = 24 * time.Hour

// Endless reports whether each new machine would be replaced at once, because
// its certificates never last longer than ExpiryWindow. That counts for nothing
// then. How old a machine is says nothing of it: a move to another management
// cluster makes all of them young.
func Endless(in Input) bool {
	return in.CertificateLifetime > 0 && in.ExpiryWindow > in.CertificateLifetime-leastLife
}

// expiryWindow is ExpiryWindow where it counts.
func expiryWindow(in Input) time.Duration {
	if Endless(in) {
		return 0
	}
	return in.ExpiryWindow
}

// Outdated says why a machine is to be replaced, for people: what it was not
// made with, and what time has brought.
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

// Sick says why a machine is to be remediated, for people; empty if it is not.
func Sick(in Input, m Machine) string {
	return newProblem(in, sound()).sickness(m)
}
