package keys

import (
	"context"
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

func TestSameTrust(t *testing.T) {
	t.Parallel()
	// CAs of the same name are different CAs.
	former, next := agenttest.NewCA(t, "kubernetes"), agenttest.NewCA(t, "kubernetes")
	cross := next.Cross(t, former)
	for name, tc := range map[string]struct {
		a, b string
		same bool
	}{
		"Same":     {former.PEM(), former.PEM(), true},
		"Other":    {former.PEM(), next.PEM(), false},
		"Order":    {former.PEM() + next.PEM(), next.PEM() + former.PEM(), true},
		"Cross":    {former.PEM() + next.PEM(), next.PEM() + former.PEM() + cross, true},
		"Less":     {former.PEM() + next.PEM(), next.PEM(), false},
		"More":     {former.PEM(), former.PEM() + next.PEM(), false},
		"OnlyName": {former.PEM() + cross, former.PEM(), false},
	} {
		a, err := ParseBundle(tc.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := ParseBundle(tc.b)
		if err != nil {
			t.Fatal(err)
		}
		if a.SameTrust(b) != tc.same || b.SameTrust(a) != tc.same {
			t.Errorf("%s: not %t", name, tc.same)
		}
	}
}

// TestRotatedCluster checks that a machine that joins while CAs are rotated uses certificates
// of the first CA only, and that its API server sends the one that the other CA has signed.
func TestRotatedCluster(t *testing.T) {
	t.Parallel()
	for name, signed := range map[string]bool{"FirstSigns": true, "OtherSigns": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, former, want := newMachine(t)
			next, cross := cas{}, map[certificates.Authority]string{}
			for a, ca := range former {
				next[a] = agenttest.NewCA(t, string(a))
				cross[a] = next[a].Cross(t, ca)
				n.Put("etc/kubernetes/pki/"+a.File(), next[a].PEM()+ca.PEM()+cross[a])
			}
			signing := former
			if signed {
				signing = next
			}
			s := newAPIServer(t, signing)
			joins := node1
			joins.First = false
			err := Ensure(context.Background(), n.Machine, want, joins, func() (Signer, error) { return s.signer(t, n), nil })
			if !signed {
				if err == nil || !strings.Contains(err.Error(), "the CA of the cluster did not sign it") || n.There("etc/kubernetes/admin.conf") {
					t.Errorf("a certificate of the other CA was used: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := n.Get("etc/kubernetes/pki/apiserver.crt"); strings.Count(got, "BEGIN") != 2 || !strings.HasSuffix(got, cross[certificates.Kubernetes]) {
				t.Errorf("the API server sends\n%s", got)
			}
			if got := n.Get("etc/kubernetes/pki/front-proxy-client.crt"); strings.Count(got, "BEGIN") != 1 {
				t.Errorf("another certificate has a chain:\n%s", got)
			}
			// The former CA is dropped, while another certificate has to be signed again.
			for a := range former {
				n.Put("etc/kubernetes/pki/"+a.File(), next[a].PEM())
			}
			n.Put("etc/kubernetes/pki/front-proxy-client.crt", "")
			if err := Ensure(context.Background(), n.Machine, want, joins, func() (Signer, error) { return s.signer(t, n), nil }); err != nil {
				t.Fatal(err)
			}
			if got := n.Get("etc/kubernetes/pki/apiserver.crt"); strings.Count(got, "BEGIN") != 1 {
				t.Errorf("without the former CA, the API server sends\n%s", got)
			}
			// Another CA gets a request of another name for the same key.
			count := s.Count()
			for a, ca := range former {
				n.Put("etc/kubernetes/pki/"+a.File(), ca.PEM()+next[a].PEM())
				s.CAs[a.Signer()] = ca
			}
			if err := Ensure(context.Background(), n.Machine, want, joins, func() (Signer, error) { return s.signer(t, n), nil }); err != nil {
				t.Fatal(err)
			}
			if s.Count() != 2*count || !former[certificates.Kubernetes].Has(t, n.Get("etc/kubernetes/pki/apiserver.crt")) {
				t.Errorf("%d requests", s.Count())
			}
		})
	}
}
