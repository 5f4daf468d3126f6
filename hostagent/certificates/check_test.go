package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Hour)
	wanted := Wanted{
		CommonName: "system:node:a", Organizations: []string{"system:nodes"}, DNSNames: []string{"a", "b"}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.5")},
		Server: true, Until: until,
	}
	for name, tc := range map[string]struct {
		change func(*x509.Certificate)
		want   string
	}{
		"same":          {change: func(*x509.Certificate) {}},
		"another order": {change: func(c *x509.Certificate) { c.DNSNames = []string{"b", "a"} }},
		"key":           {change: func(c *x509.Certificate) { c.PublicKey = other.Public() }, want: "another key"},
		"CA":            {change: func(c *x509.Certificate) { c.IsCA = true }, want: "a CA"},
		"user":          {change: func(c *x509.Certificate) { c.Subject.CommonName = "system:node:b" }, want: "subject"},
		"group":         {change: func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }, want: "subject"},
		"another group": {change: func(c *x509.Certificate) { c.Subject.Organization = []string{"system:nodes", "system:masters"} }, want: "subject"},
		"attribute":     {change: func(c *x509.Certificate) { c.Subject.Names = append(c.Subject.Names, pkix.AttributeTypeAndValue{}) }, want: "subject"},
		"name":          {change: func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "c") }, want: "names"},
		"missing name":  {change: func(c *x509.Certificate) { c.DNSNames = c.DNSNames[:1] }, want: "names"},
		"address":       {change: func(c *x509.Certificate) { c.IPAddresses = append(c.IPAddresses, net.IPv4(10, 0, 0, 6)) }, want: "names"},
		"URI":           {change: func(c *x509.Certificate) { c.URIs = []*url.URL{{Host: "a"}} }, want: "names"},
		"email":         {change: func(c *x509.Certificate) { c.EmailAddresses = []string{"a@example.com"} }, want: "names"},
		"client":        {change: func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) }, want: "uses"},
		"signs":         {change: func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign }, want: "uses"},
		"unknown use":   {change: func(c *x509.Certificate) { c.UnknownExtKeyUsage = append(c.UnknownExtKeyUsage, []int{1, 2}) }, want: "uses"},
		"end":           {change: func(c *x509.Certificate) { c.NotAfter = until.Add(time.Second) }, want: "later"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &x509.Certificate{
				PublicKey: key.Public(), Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}, Names: make([]pkix.AttributeTypeAndValue, 2)},
				DNSNames: []string{"a", "b"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 5)}, KeyUsage: x509.KeyUsageDigitalSignature,
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotAfter: until,
			}
			tc.change(c)
			err := wanted.Check(c, key.Public())
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
