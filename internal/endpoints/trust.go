package endpoints

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// Trust defines how the certificate of a hypervisor is verified: against the
// CAs of the system, unless a field is set.
type Trust struct {
	// CABundle has CA certificates in PEM.
	CABundle string
	// Thumbprint is the SHA-256 of the only certificate to trust, as in AB:CD:EF.
	Thumbprint string
}

// Config returns the TLS settings of t. It fails if CABundle has no certificate.
func (t Trust) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case t.Thumbprint != "":
		want := strings.ToUpper(t.Thumbprint)
		// The chain does not matter: exactly one certificate is trusted.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(cs tls.ConnectionState) error {
			if got := thumbprint(cs.PeerCertificates[0]); got != want {
				return &pinError{got: got, want: want}
			}
			return nil
		}
	case t.CABundle != "":
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(t.CABundle)) {
			return nil, errors.New("spec.tls.caBundle holds no certificate")
		}
	}
	return c, nil
}

func thumbprint(cert *x509.Certificate) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(cert.Raw)), " ", ":")
}

// pinError is returned for a certificate other than the pinned one. Only the log
// has its text.
type pinError struct{ got, want string }

func (e *pinError) Error() string {
	return fmt.Sprintf("the SHA-256 thumbprint of the certificate is %s, want %s", e.got, e.want)
}
