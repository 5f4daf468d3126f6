package bed

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// validity is how long a bed's certificates are good for.
const validity = 30 * 24 * time.Hour

// authority signs the management cluster's certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// pair is a certificate and its key, both in PEM.
type pair struct {
	cert, key []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making certificate authority: %w", err)
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "nova-bed"}, key)
	if err != nil {
		return nil, fmt.Errorf("making certificate authority: %w", err)
	}
	return &authority{cert: ca, key: key}, nil
}

// bundle returns the authority's certificate in PEM.
func (a *authority) bundle() []byte {
	pem, _ := cert.EncodeCertificates(a.cert)
	return pem
}

// client issues a client certificate.
func (a *authority) client(name string, groups ...string) (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server issues a serving certificate.
func (a *authority) server(name string, names []string, addresses ...net.IP) (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    names,
		IPAddresses: addresses,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	fail := func(err error) (pair, error) {
		return pair{}, fmt.Errorf("issuing certificate of %s: %w", template.Subject.CommonName, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fail(err)
	}
	template.SerialNumber = serial
	template.NotBefore = a.cert.NotBefore
	template.NotAfter = time.Now().Add(validity)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fail(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return fail(err)
	}
	certPEM, err := cert.EncodeCertificates(parsed)
	if err != nil {
		return fail(err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fail(err)
	}
	return pair{cert: certPEM, key: keyPEM}, nil
}

// write puts the pair into two files.
func (p pair) write(certPath, keyPath string) error {
	if err := os.MkdirAll(filepath.Dir(certPath), 0o755); err != nil {
		return fmt.Errorf("writing certificate: %w", err)
	}
	if err := errors.Join(os.WriteFile(certPath, p.cert, 0o644), os.WriteFile(keyPath, p.key, 0o600)); err != nil {
		return fmt.Errorf("writing certificate: %w", err)
	}
	return nil
}
