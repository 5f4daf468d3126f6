package certificates

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Wanted is the certificate that a request asks for. The agent and the managers compare
// it before they use one: a role of a vault may allow more than it should.
type Wanted struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []netip.Addr
	// Client and Server are the uses of the key.
	Client, Server bool
	// Until is the latest end of its validity. If not set, the signer decides.
	Until time.Time
}

// Check returns how a certificate of a key differs. The CA that signed it is not checked.
func (w *Wanted) Check(is *x509.Certificate, key crypto.PublicKey) error {
	public, compares := is.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !compares || !public.Equal(key):
		return errors.New("it has another key")
	case is.IsCA:
		return errors.New("it is the certificate of a CA")
	case is.Subject.CommonName != w.CommonName || !sameSet(is.Subject.Organization, w.Organizations) || len(is.Subject.Names) != 1+len(w.Organizations):
		return fmt.Errorf("its subject is %s", is.Subject)
	case !w.hasNames(is):
		return fmt.Errorf("its names are %v %v", is.DNSNames, is.IPAddresses)
	case is.KeyUsage != x509.KeyUsageDigitalSignature || len(is.UnknownExtKeyUsage) > 0 || !sameSet(is.ExtKeyUsage, w.Uses()):
		return errors.New("it has other uses")
	case !w.Until.IsZero() && is.NotAfter.After(w.Until):
		return fmt.Errorf("it ends later than requested, at %s", is.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

func (w *Wanted) hasNames(is *x509.Certificate) bool {
	ips := make([]netip.Addr, 0, len(is.IPAddresses))
	for _, ip := range is.IPAddresses {
		address, _ := netip.AddrFromSlice(ip)
		ips = append(ips, address.Unmap())
	}
	return sameSet(is.DNSNames, w.DNSNames) && sameSet(ips, w.IPs) && len(is.EmailAddresses)+len(is.URIs) == 0
}

// Uses returns the uses of the key.
func (w *Wanted) Uses() []x509.ExtKeyUsage {
	var uses []x509.ExtKeyUsage
	if w.Server {
		uses = append(uses, x509.ExtKeyUsageServerAuth)
	}
	if w.Client {
		uses = append(uses, x509.ExtKeyUsageClientAuth)
	}
	return uses
}

// sameSet reports whether two lists have the same elements.
func sameSet[T comparable](a, b []T) bool {
	contains := func(all []T) func(T) bool { return func(one T) bool { return !slices.Contains(all, one) } }
	return !slices.ContainsFunc(a, contains(b)) && !slices.ContainsFunc(b, contains(a))
}
