package keys

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"path"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// Bundle are the certificates of a CA. The first one is that of the CA that signs. While
// CAs are rotated there is a former or a next one, too.
type Bundle []*x509.Certificate

// Bundles are those of the CAs of a node.
type Bundles map[certificates.Authority]Bundle

// ParseBundle reads certificates in PEM.
func ParseBundle(content string) (Bundle, error) {
	parsed, err := certutil.ParseCertsPEM([]byte(content))
	if err != nil {
		return nil, fmt.Errorf("reading the certificates of a CA: %w", err)
	}
	return parsed, nil
}

// loadBundles reads the CAs of a control plane machine.
func loadBundles(m *machine.Machine, externalEtcd bool) (Bundles, error) {
	all := Bundles{}
	for _, a := range certificates.Authorities() {
		if a == certificates.Etcd && externalEtcd {
			continue
		}
		content, err := m.Load(path.Join(nodeconfig.KeysDir, a.File()))
		if err != nil {
			return nil, err
		}
		if all[a], err = ParseBundle(content); err != nil {
			return nil, fmt.Errorf("%s: %w", a.File(), err)
		}
	}
	return all, nil
}

// SameTrust reports whether two bundles trust the same CAs. Neither the order nor a
// certificate of the same CA with another issuer make a difference.
func (b Bundle) SameTrust(as Bundle) bool {
	missing := func(in Bundle) func(*x509.Certificate) bool {
		return func(c *x509.Certificate) bool {
			return !slices.ContainsFunc(in, func(other *x509.Certificate) bool { return sameCA(c, other) })
		}
	}
	return !slices.ContainsFunc(b, missing(as)) && !slices.ContainsFunc(as, missing(b))
}

func sameCA(a, b *x509.Certificate) bool {
	return bytes.Equal(a.RawSubject, b.RawSubject) && bytes.Equal(a.RawSubjectPublicKeyInfo, b.RawSubjectPublicKeyInfo)
}

// verify returns an error unless the CA that signs has signed a certificate that is valid.
func (b Bundle) verify(is *x509.Certificate, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(b[0])
	if _, err := is.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return fmt.Errorf("the CA of the cluster did not sign it: %w", err)
	}
	return nil
}

// chain returns the content of the file of a certificate. API servers send the certificate
// of their CA that another CA has signed.
func (b Bundle) chain(name string, leaf *x509.Certificate) []byte {
	content := encode(leaf)
	if cross := b.cross(); cross != nil && name == certificates.APIServer {
		content = append(content, encode(cross)...)
	}
	return content
}

// cross returns the certificate of the CA that signs that another CA has signed, or nil.
// Clients that trust only the other CA verify a server with it.
func (b Bundle) cross() *x509.Certificate {
	for _, c := range b[1:] {
		if sameCA(c, b[0]) && c.CheckSignatureFrom(b[0]) != nil {
			return c
		}
	}
	return nil
}
