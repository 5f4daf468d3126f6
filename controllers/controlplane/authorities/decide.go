package authorities

import (
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

// Stage is the stage of a rotation.
type Stage int

// Stages of a rotation.
const (
	// Rotated means that all machines trust only CAs that are new enough.
	Rotated Stage = iota
	// MakingNew means that new CAs are to be made.
	MakingNew
	// TrustingBoth means that machines get the certificates of the new CAs.
	TrustingBoth
	// IssuingNew means that machines get certificates that the new CAs have signed.
	IssuingNew
	// TrustingNew means that machines lose the certificates of the former CAs.
	TrustingNew
	// Aborting means that machines get certificates that the former CAs have signed.
	Aborting
)

// decide returns the stage of a rotation, and the step that is due; none if it is empty.
// All machines have the current state if they are synced.
func decide(r *pki.Rotation, after, now time.Time, synced bool) (Stage, pki.RotationStep) {
	requested := !after.IsZero() && !after.After(now)
	due, two, swap := false, false, false
	for _, g := range r.CAs {
		if g.Other == nil {
			due = due || requested && pki.Made(g.Signing).Before(after)
			continue
		}
		two = true
		// The newer CA is to sign, or the older one again after an abort.
		swap = swap || g.Other.NotBefore.After(g.Signing.NotBefore) == requested
	}
	if due {
		return MakingNew, pki.AddAuthorities
	}
	if two && !requested {
		if swap {
			return Aborting, pki.UnswapAuthorities // all machines trust both
		}
		return Aborting, when(synced, pki.DropAuthorities)
	}
	switch {
	case swap:
		return TrustingBoth, when(synced, pki.SwapAuthorities)
	case two:
		return IssuingNew, when(synced, pki.DropAuthorities)
	case !synced:
		return TrustingNew, ""
	}
	return Rotated, ""
}

func when(synced bool, step pki.RotationStep) pki.RotationStep {
	if synced {
		return step
	}
	return ""
}
