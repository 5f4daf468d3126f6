package pki

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// compare returns how a certificate differs from the request; empty if it does not. So a
// role that allows more than it should is found at its first use.
func (r *SignRequest) compare(signed, authority *x509.Certificate, now time.Time) string {
	block, _ := pem.Decode(r.Request)
	if block == nil {
		return "the request is not in PEM"
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return "the request cannot be read"
	}
	switch {
	case !samePublicKey(signed.PublicKey, crypto.PublicKey(request.PublicKey)):
		return "it has another key"
	case signed.CheckSignatureFrom(authority) != nil:
		return "it is signed by another CA"
	case !r.hasSubject(signed):
		return fmt.Sprintf("its subject is %q", signed.Subject)
	case !r.hasNames(signed):
		return "it has other names or addresses"
	case !r.hasUses(signed):
		return "it has other uses"
	case signed.NotAfter.After(now.Add(r.TTL + clockSkew)):
		return "it is valid for too long, until " + signed.NotAfter.UTC().Format(time.RFC3339)
	}
	return ""
}

func (r *SignRequest) hasSubject(signed *x509.Certificate) bool {
	return signed.Subject.CommonName == r.CommonName && sameSet(signed.Subject.Organization, r.Organizations) && len(signed.Subject.Names) == 1+len(r.Organizations)
}

func (r *SignRequest) hasNames(signed *x509.Certificate) bool {
	ips := make([]netip.Addr, 0, len(signed.IPAddresses))
	for _, ip := range signed.IPAddresses {
		address, _ := netip.AddrFromSlice(ip)
		ips = append(ips, address.Unmap())
	}
	return sameSet(signed.DNSNames, r.DNSNames) && sameSet(ips, r.IPs) && len(signed.URIs)+len(signed.EmailAddresses) == 0
}

func (r *SignRequest) hasUses(signed *x509.Certificate) bool {
	var uses []x509.ExtKeyUsage
	if r.Server {
		uses = append(uses, x509.ExtKeyUsageServerAuth)
	}
	if r.Client {
		uses = append(uses, x509.ExtKeyUsageClientAuth)
	}
	return !signed.IsCA && signed.KeyUsage == x509.KeyUsageDigitalSignature && len(signed.UnknownExtKeyUsage) == 0 && sameSet(signed.ExtKeyUsage, uses)
}

// sameSet reports whether two lists have the same elements.
func sameSet[T comparable](a, b []T) bool {
	contains := func(all []T) func(T) bool { return func(one T) bool { return !slices.Contains(all, one) } }
	return !slices.ContainsFunc(a, contains(b)) && !slices.ContainsFunc(b, contains(a))
}
