package agenttest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// CA is a CA that signs any template, as of a minute ago.
type CA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewCA makes a CA.
func NewCA(t *testing.T, name string) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const validity = 10000 * time.Hour
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{certificate: certificate, key: key}
}

// Cross returns the certificate of the CA that another CA has signed, in PEM.
func (c *CA) Cross(t *testing.T, by *CA) string {
	t.Helper()
	template := *c.certificate
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	der, err := x509.CreateCertificate(rand.Reader, &template, by.certificate, c.key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	return encodeCertificate(der)
}

// Has reports whether the CA has signed the first certificate of a text in PEM.
func (c *CA) Has(t *testing.T, content string) bool {
	t.Helper()
	block, _ := pem.Decode([]byte(content))
	if block == nil {
		t.Errorf("no certificate in %q", content)
		return false
	}
	signed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Error(err)
		return false
	}
	return signed.CheckSignatureFrom(c.certificate) == nil
}

// PEM returns the certificate of the CA.
func (c *CA) PEM() string { return encodeCertificate(c.certificate.Raw) }

// Sign returns a certificate for the key of a request, both in PEM.
func (c *CA) Sign(t *testing.T, request []byte, template *x509.Certificate) string {
	t.Helper()
	block, _ := pem.Decode(request)
	if block == nil {
		t.Error("the request is not in PEM")
		return ""
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Error(err)
		return ""
	}
	return c.sign(t, parsed.PublicKey, template)
}

func (c *CA) sign(t *testing.T, key crypto.PublicKey, template *x509.Certificate) string {
	t.Helper()
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Minute)
	template.KeyUsage, template.BasicConstraintsValid = x509.KeyUsageDigitalSignature, true
	der, err := x509.CreateCertificate(rand.Reader, template, c.certificate, key, c.key)
	if err != nil {
		t.Error(err)
	}
	return encodeCertificate(der)
}

// SignForKubelet returns a certificate of a kubelet with its key, as in the kubelet's files.
func (c *CA) SignForKubelet(t *testing.T, node string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	subject := pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
	return c.sign(t, key.Public(), &x509.Certificate{Subject: subject, NotAfter: time.Now().Add(time.Hour)}) + string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func encodeCertificate(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
