package authorities

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
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
		stage  string
		step   pki.RotationStep
	}{
		{"nothing is requested", []pki.Generations{only(old)}, time.Time{}, true, controlplanev1.AuthoritiesRotatedReason, ""},
		{"the time has not passed", []pki.Generations{only(old)}, later, true, controlplanev1.AuthoritiesRotatedReason, ""},
		{"the CA is newer", []pki.Generations{only(old)}, done, true, controlplanev1.AuthoritiesRotatedReason, ""},
		{"the time has passed", []pki.Generations{only(old)}, due, true, controlplanev1.AuthoritiesTrustingBothReason, pki.AddAuthorities},
		{"one was made before an interruption", []pki.Generations{both(old, fresh), only(old)}, due, false, controlplanev1.AuthoritiesTrustingBothReason, pki.AddAuthorities},
		{"machines do not trust both", []pki.Generations{both(old, fresh)}, due, false, controlplanev1.AuthoritiesTrustingBothReason, ""},
		{"all machines trust both", []pki.Generations{both(old, fresh)}, due, true, controlplanev1.AuthoritiesTrustingBothReason, pki.SwapAuthorities},
		{"one signs since an interruption", []pki.Generations{both(old, fresh), both(fresh, old)}, due, false, controlplanev1.AuthoritiesTrustingBothReason, ""},
		{"machines have certificates of the old one", []pki.Generations{both(fresh, old)}, due, false, controlplanev1.AuthoritiesIssuingNewReason, ""},
		{"all machines have certificates of the new one", []pki.Generations{both(fresh, old)}, due, true, controlplanev1.AuthoritiesIssuingNewReason, pki.DropAuthorities},
		{"one was dropped before an interruption", []pki.Generations{both(fresh, old), only(fresh)}, due, false, controlplanev1.AuthoritiesIssuingNewReason, ""},
		{"machines trust the old one", []pki.Generations{only(fresh)}, due, false, controlplanev1.AuthoritiesTrustingNewReason, ""},
		{"all machines trust the new one only", []pki.Generations{only(fresh)}, due, true, controlplanev1.AuthoritiesRotatedReason, ""},
		{"a later time is set during a rotation, and has passed", []pki.Generations{both(fresh, old)}, now, true, controlplanev1.AuthoritiesIssuingNewReason, pki.DropAuthorities},
		{"aborted before the new one signs", []pki.Generations{both(old, fresh)}, time.Time{}, false, controlplanev1.AuthoritiesAbortingReason, ""},
		{"aborted, and no machine needs the new one", []pki.Generations{both(old, fresh)}, later, true, controlplanev1.AuthoritiesAbortingReason, pki.DropAuthorities},
		{"aborted while the new one signs", []pki.Generations{both(fresh, old)}, time.Time{}, false, controlplanev1.AuthoritiesAbortingReason, pki.UnswapAuthorities},
		{"aborted when it is too late", []pki.Generations{only(fresh)}, time.Time{}, false, controlplanev1.AuthoritiesTrustingNewReason, ""},
	} {
		r := &pki.Rotation{CAs: map[certificates.Authority]pki.Generations{}}
		for i, g := range tc.cas {
			r.CAs[certificates.Authorities()[i]] = g
		}
		if stage, step := decide(r, tc.after, now, tc.synced); stage != tc.stage || step != tc.step {
			t.Errorf("%s: decided %q %q, want %q %q", tc.name, stage, step, tc.stage, tc.step)
		}
	}
}

func TestWaits(t *testing.T) {
	machine := func(name string) clusterv1.Machine {
		m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		m.Status.NodeRef.Name = name
		return m
	}
	s := &scope.Scope{Workload: facts.Cluster{Nodes: []facts.Node{{Name: "a", Authorities: "1"}, {Name: "b"}, {Name: "left"}}}}
	s.Rotation.State = &pki.Rotation{ID: "1"}
	machines := []clusterv1.Machine{machine("a"), machine("b"), machine("c")}
	if got := waits(s, machines); !slices.Equal(got, []string{"the workload cluster, which does not respond"}) {
		t.Error(got)
	}
	s.Workload.Answers = true
	if got := waits(s, machines); !slices.Equal(got, []string{"machine c", "node b", "node left (without a Machine)"}) {
		t.Error(got)
	}
}
