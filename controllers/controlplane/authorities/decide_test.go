package authorities

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	old, fresh := &x509.Certificate{NotBefore: now.Add(-24 * time.Hour)}, &x509.Certificate{NotBefore: now.Add(-time.Minute)}
	only := func(signing *x509.Certificate) pki.Generations { return pki.Generations{Signing: signing} }
	both := func(signing, other *x509.Certificate) pki.Generations {
		return pki.Generations{Signing: signing, Other: other}
	}
	due, later, done := now.Add(-time.Hour), now.Add(time.Hour), now.Add(-48*time.Hour)
	for _, tc := range []struct {
		name   string
		cas    []pki.Generations
		after  time.Time
		synced bool
		stage  Stage
		step   pki.RotationStep
	}{
		{"nothing is requested", []pki.Generations{only(old)}, time.Time{}, true, Rotated, ""},
		{"the time has not passed", []pki.Generations{only(old)}, later, true, Rotated, ""},
		{"the CA is newer", []pki.Generations{only(old)}, done, true, Rotated, ""},
		{"the time has passed", []pki.Generations{only(old)}, due, true, MakingNew, pki.AddAuthorities},
		{"one was made before an interruption", []pki.Generations{both(old, fresh), only(old)}, due, false, MakingNew, pki.AddAuthorities},
		{"machines do not trust both", []pki.Generations{both(old, fresh)}, due, false, TrustingBoth, ""},
		{"all machines trust both", []pki.Generations{both(old, fresh)}, due, true, TrustingBoth, pki.SwapAuthorities},
		{"one signs since an interruption", []pki.Generations{both(old, fresh), both(fresh, old)}, due, false, TrustingBoth, ""},
		{"machines have certificates of the old one", []pki.Generations{both(fresh, old)}, due, false, IssuingNew, ""},
		{"all machines have certificates of the new one", []pki.Generations{both(fresh, old)}, due, true, IssuingNew, pki.DropAuthorities},
		{"one was dropped before an interruption", []pki.Generations{both(fresh, old), only(fresh)}, due, false, IssuingNew, ""},
		{"machines trust the old one", []pki.Generations{only(fresh)}, due, false, TrustingNew, ""},
		{"all machines trust the new one only", []pki.Generations{only(fresh)}, due, true, Rotated, ""},
		{"a later time is set during a rotation, and has passed", []pki.Generations{both(fresh, old)}, now, true, IssuingNew, pki.DropAuthorities},
		{"aborted before the new one signs", []pki.Generations{both(old, fresh)}, time.Time{}, false, Aborting, ""},
		{"aborted, and no machine needs the new one", []pki.Generations{both(old, fresh)}, later, true, Aborting, pki.DropAuthorities},
		{"aborted while the new one signs", []pki.Generations{both(fresh, old)}, time.Time{}, false, Aborting, pki.UnswapAuthorities},
		{"aborted when it is too late", []pki.Generations{only(fresh)}, time.Time{}, false, TrustingNew, ""},
	} {
		r := &pki.Rotation{CAs: map[certificates.Authority]pki.Generations{}}
		for i, g := range tc.cas {
			r.CAs[certificates.Authorities()[i]] = g
		}
		if stage, step := decide(r, tc.after, now, tc.synced); stage != tc.stage || step != tc.step {
			t.Errorf("%s: decided %v %q, want %v %q", tc.name, stage, step, tc.stage, tc.step)
		}
	}
}
