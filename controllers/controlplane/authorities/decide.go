package authorities

import (
	"time"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

// decide returns the stage of a rotation, which is the reason of the condition, and the
// step that is due; none if it is empty. All machines have the current state if they are
// synced.
func decide(r *pki.Rotation, after, now time.Time, synced bool) (stage string, step pki.RotationStep) {
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
		return controlplanev1.AuthoritiesTrustingBothReason, pki.AddAuthorities
	}
	if two && !requested {
		if swap {
			return controlplanev1.AuthoritiesAbortingReason, pki.UnswapAuthorities // all machines trust both
		}
		return controlplanev1.AuthoritiesAbortingReason, when(synced, pki.DropAuthorities)
	}
	switch {
	case swap:
		return controlplanev1.AuthoritiesTrustingBothReason, when(synced, pki.SwapAuthorities)
	case two:
		return controlplanev1.AuthoritiesIssuingNewReason, when(synced, pki.DropAuthorities)
	case !synced:
		return controlplanev1.AuthoritiesTrustingNewReason, ""
	}
	return controlplanev1.AuthoritiesRotatedReason, ""
}

func when(synced bool, step pki.RotationStep) pki.RotationStep {
	if synced {
		return step
	}
	return ""
}
