package pki

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"sigs.k8s.io/cluster-api/util/certs"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

const (
	// authorityLifetime is the default validity of a generated CA certificate.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// clockSkew lets a node whose clock is slightly slow use a new certificate.
	clockSkew = 5 * time.Minute
	// serialBits is the size of a random serial number.
	serialBits = 127
	// serviceAccountKeyBits is the size of the service account key.
	serviceAccountKeyBits = 2048
)

type signer = crypto.Signer

// generate creates the content of a Secret of the contract.
//
// CAs are ECDSA P-256: all of Kubernetes accepts it, it needs a fraction of
// RSA's time, and it keeps bootstrap data small. The service account key is RSA
// 2048: RS256 is the only algorithm that every relying party of OpenID Connect
// must support, and service account tokens are used outside the cluster.
func generate(mat material, now time.Time, validity time.Duration) (KeyPair, error) {
	if !mat.isCA() {
		key, err := rsa.GenerateKey(rand.Reader, serviceAccountKeyBits)
		if err != nil {
			return KeyPair{}, fmt.Errorf("generating key: %w", err)
		}
		public, err := certs.EncodePublicKeyPEM(&key.PublicKey)
		if err != nil {
			return KeyPair{}, fmt.Errorf("encoding public key: %w", err)
		}
		return KeyPair{Certificate: public, Key: certs.EncodePrivateKeyPEM(key)}, nil
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: mat.commonName},
		DNSNames:              []string{mat.commonName},
		NotBefore:             now.Add(-clockSkew).UTC(),
		NotAfter:              now.Add(validity).UTC(),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	return issue(template, nil, nil)
}

// issueClient issues a client certificate, in the vault if it has the key.
func (l *loaded) issueClient(ctx context.Context, a certificates.Authority, request ClientRequest, now time.Time) (KeyPair, error) {
	if l.vault != nil {
		return l.vault.issueClient(ctx, a, l.certificate, request)
	}
	return l.sign(request, now)
}

// sign issues a client certificate.
func (l *loaded) sign(request ClientRequest, now time.Time) (KeyPair, error) {
	if request.CommonName == "" || request.TTL <= 0 {
		return KeyPair{}, errors.New("issuing client certificate: a common name and a lifetime are needed")
	}
	return issue(l.template(request, now), l.certificate, l.key)
}

// signRequest signs the key of a request.
func (l *loaded) signRequest(request *SignRequest, now time.Time) ([]byte, error) {
	if l.key == nil {
		return nil, errors.New("signing certificate: the key of the CA is not here")
	}
	parsed, err := request.parse()
	if err == nil {
		err = parsed.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("signing certificate: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := l.template(ClientRequest{CommonName: request.CommonName, Organizations: request.Organizations, TTL: request.TTL}, now)
	wanted := certificates.Wanted{Client: request.Client, Server: request.Server}
	template.SerialNumber, template.DNSNames, template.ExtKeyUsage = serial, request.DNSNames, wanted.Uses()
	for _, ip := range request.IPs {
		template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, template, l.certificate, parsed.PublicKey, l.key)
	if err != nil {
		return nil, fmt.Errorf("signing certificate: %w", err)
	}
	return certs.EncodeCertPEM(&x509.Certificate{Raw: der}), nil
}

// template returns the certificate of a client.
func (l *loaded) template(request ClientRequest, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: request.CommonName, Organization: request.Organizations},
		NotBefore:   slices.MaxFunc([]time.Time{now.Add(-clockSkew), l.certificate.NotBefore}, time.Time.Compare).UTC(),
		NotAfter:    slices.MinFunc([]time.Time{now.Add(request.TTL), l.certificate.NotAfter}, time.Time.Compare).UTC(),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// parse checks the content of a Secret and describes its problem.
func parse(mat material, pair KeyPair, now time.Time) (result *loaded, problem string) {
	if len(pair.Certificate) == 0 {
		return nil, "key tls.crt is missing or empty"
	}
	if len(pair.Key) == 0 {
		return nil, "key tls.key is missing or empty"
	}
	key, err := certs.DecodePrivateKeyPEM(pair.Key)
	if err != nil || key == nil {
		return nil, "tls.key is no RSA or ECDSA private key in PEM"
	}
	if !mat.isCA() {
		public, err := decodePublicKey(pair.Certificate)
		if err != nil {
			return nil, "tls.crt is no public key in PEM"
		}
		if !samePublicKey(public, key.Public()) {
			return nil, "tls.crt does not belong to tls.key"
		}
		return &loaded{pair: pair, key: key}, ""
	}
	certificate, problem := parseAuthority(pair.Certificate, now)
	switch {
	case certificate == nil:
		return nil, problem
	case !samePublicKey(certificate.PublicKey, key.Public()):
		return nil, "tls.crt does not belong to tls.key"
	case problem != "":
		return nil, problem
	}
	return &loaded{pair: pair, certificate: certificate, key: key}, ""
}

// parseAuthority checks the certificate of a CA, the first one in data. It
// returns the certificate even with a problem, if it can be parsed.
func parseAuthority(data []byte, now time.Time) (certificate *x509.Certificate, problem string) {
	certificate, err := certs.DecodeCertPEM(data)
	switch {
	case err != nil || certificate == nil:
		return nil, "tls.crt is no certificate in PEM"
	case !certificate.IsCA:
		return nil, "tls.crt is not the certificate of a certificate authority"
	case certificate.KeyUsage != 0 && certificate.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, "tls.crt is of a certificate authority that may not sign certificates: its key usage lacks keyCertSign"
	case now.After(certificate.NotAfter):
		return certificate, "tls.crt has expired"
	case now.Before(certificate.NotBefore):
		return certificate, "tls.crt is not valid yet"
	}
	return certificate, ""
}

// issue generates a key and signs its certificate with the key of the parent,
// or with itself if there is no parent.
func issue(template, parent *x509.Certificate, by signer) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("generating key: %w", err)
	}
	if parent == nil {
		parent, by = template, key
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return KeyPair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return KeyPair{}, fmt.Errorf("signing certificate: %w", err)
	}
	return encode(der, key)
}

func encode(der []byte, key crypto.Signer) (KeyPair, error) {
	keyPEM, err := certs.EncodePrivateKeyPEMFromSigner(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encoding key: %w", err)
	}
	return KeyPair{Certificate: certs.EncodeCertPEM(&x509.Certificate{Raw: der}), Key: keyPEM}, nil
}

func decodePublicKey(data []byte) (crypto.PublicKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no PEM data")
	}
	if block.Type == "RSA PUBLIC KEY" {
		return x509.ParsePKCS1PublicKey(block.Bytes)
	}
	return x509.ParsePKIXPublicKey(block.Bytes)
}

func samePublicKey(a, b crypto.PublicKey) bool {
	key, ok := a.(interface{ Equal(x crypto.PublicKey) bool })
	return ok && key.Equal(b)
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("generating serial number: %w", err)
	}
	return serial, nil
}
