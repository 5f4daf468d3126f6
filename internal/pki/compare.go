package pki

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

// compare returns how a certificate differs from the request. So a role that allows more
// than it should is found at its first use.
func (r *SignRequest) compare(signed, authority *x509.Certificate, now time.Time) error {
	request, err := r.parse()
	if err != nil {
		return err
	}
	if err := signed.CheckSignatureFrom(authority); err != nil {
		return fmt.Errorf("the CA of the cluster did not sign it: %w", err)
	}
	wanted := certificates.Wanted{
		CommonName: r.CommonName, Organizations: r.Organizations, DNSNames: r.DNSNames, IPs: r.IPs,
		Client: r.Client, Server: r.Server, Until: now.Add(r.TTL + clockSkew),
	}
	return wanted.Check(signed, request.PublicKey)
}

// parse reads the PKCS #10 request.
func (r *SignRequest) parse() (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(r.Request)
	if block == nil {
		return nil, errors.New("the request is not in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	return request, nil
}
