package plan

// Outdated says why a machine is to be replaced, for people: what it was not
// made with, and what time has brought.
func Outdated(in Input, m Machine) []string {
	why := append([]string(nil), m.Differs...)
	if !in.RolloutAfter.IsZero() && !in.RolloutAfter.After(in.Now) && m.Created.Before(in.RolloutAfter) {
		why = append(why, "it was created before rollout.after")
	}
	if in.ExpiryWindow > 0 && !m.CertificatesExpire.IsZero() && m.CertificatesExpire.Before(in.Now.Add(in.ExpiryWindow)) {
		why = append(why, "its certificates expire soon")
	}
	return why
}

// Sick says why a machine is to be remediated, for people; empty if it is not.
func Sick(in Input, m Machine) string {
	return newProblem(in, sound()).sickness(m)
}
