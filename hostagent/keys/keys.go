package keys

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path"
	"path/filepath"
	"strings"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// Request is a request for one certificate.
type Request struct {
	Certificate certificates.Certificate
	// CommonName, DNSNames and IPs are the names in the certificate.
	CommonName string
	DNSNames   []string
	IPs        []netip.Addr
	Validity   time.Duration
	// PEM is the PKCS #10 request.
	PEM []byte

	key crypto.Signer
	// renewedBefore is the time of a renewal.
	renewedBefore time.Time
}

// Signer signs requests.
type Signer interface {
	// Sign returns the certificates, in PEM and in the order of the requests.
	Sign(ctx context.Context, requests []*Request) ([][]byte, error)
}

// Node is a control plane machine.
type Node struct {
	Name      string
	Addresses []netip.Addr
	// First is true on the machine that initializes the cluster.
	First bool
}

// NodeOf returns the node with these addresses, separated by commas.
func NodeOf(name, addresses string, first bool) (Node, error) {
	parsed, err := parseAddresses(strings.Split(addresses, ","))
	return Node{Name: name, Addresses: parsed, First: first}, err
}

func parseAddresses(list []string) ([]netip.Addr, error) {
	all := make([]netip.Addr, 0, len(list))
	for _, text := range list {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("reading addresses: %w", err)
		}
		all = append(all, address)
	}
	return all, nil
}

// Ensure gives the machine the certificates that it does not have. The signer is made
// only if one is missing: its credentials may be valid once.
func Ensure(ctx context.Context, m *machine.Machine, want *nodeconfig.Certificates, node Node, signer func() (Signer, error)) error {
	return replace(ctx, m, want, node, time.Time{}, signer)
}

// Renew renews the certificates that end before a time.
func Renew(ctx context.Context, m *machine.Machine, want *nodeconfig.Certificates, node Node, before time.Time, signer Signer) error {
	return replace(ctx, m, want, node, before, func() (Signer, error) { return signer, nil })
}

// replace replaces the certificates that are unusable, or end before a time.
func replace(ctx context.Context, m *machine.Machine, want *nodeconfig.Certificates, node Node, before time.Time, signer func() (Signer, error)) error {
	requests, err := requestsOf(want, node)
	if err != nil {
		return err
	}
	var due []*Request
	for _, r := range requests {
		roots, err := rootsOf(m, r.Certificate.Authority)
		if err != nil {
			return err
		}
		if stored, err := load(m, r.Certificate); err == nil && r.check(stored.certificate, stored.key.Public(), roots, time.Now()) == nil && !stored.certificate.NotAfter.Before(before) {
			continue
		}
		r.renewedBefore = before
		due = append(due, r)
	}
	if len(due) == 0 {
		return nil
	}
	for _, r := range due {
		if err := r.prepare(m); err != nil {
			return fmt.Errorf("making the key of %s: %w", r.Certificate.Name, err)
		}
	}
	if err := m.Flush(ctx); err != nil {
		return err
	}
	s, err := signer()
	if err != nil {
		return err
	}
	signed, err := s.Sign(ctx, due)
	if err != nil {
		return err
	}
	if err := store(m, want, node, due, signed); err != nil {
		return err
	}
	return m.Flush(ctx)
}

// store checks all certificates before it writes the first one.
func store(m *machine.Machine, want *nodeconfig.Certificates, node Node, due []*Request, signed [][]byte) error {
	for i, r := range due {
		roots, err := rootsOf(m, r.Certificate.Authority)
		if err != nil {
			return err
		}
		chain, err := certutil.ParseCertsPEM(signed[i])
		if err == nil {
			err = r.check(chain[0], r.key.Public(), roots, time.Now())
		}
		if err != nil {
			return fmt.Errorf("checking the certificate %s that was signed: %w", r.Certificate.Name, err)
		}
		signed[i] = pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: chain[0].Raw})
	}
	for i, r := range due {
		if err := r.write(m, want, node, signed[i]); err != nil {
			return fmt.Errorf("writing the certificate %s: %w", r.Certificate.Name, err)
		}
	}
	return nil
}

// requestsOf returns the requests for all certificates of a machine.
func requestsOf(want *nodeconfig.Certificates, node Node) ([]*Request, error) {
	ips, err := parseAddresses(want.IPs)
	if err != nil {
		return nil, err
	}
	names := certificates.Names{Node: node.Name, Addresses: node.Addresses, DNSNames: want.DNSNames, IPs: ips}
	var all []*Request
	for _, c := range certificates.Of(node.First, want.ExternalEtcd) {
		r := &Request{Certificate: c, CommonName: c.Subject(node.Name), Validity: want.Validity()}
		r.DNSNames, r.IPs = names.Of(c)
		all = append(all, r)
	}
	return all, nil
}

// prepare makes the key, and the request for its certificate. A key that has a file of
// its own is kept if it exists: key and certificate cannot be replaced at once, and a
// component with a key of another certificate would not start.
func (r *Request) prepare(m *machine.Machine) error {
	var err error
	if file := keyFile(r.Certificate); file != "" && m.Exists(file) {
		if r.key, err = loadKey(m, file); err != nil {
			return err
		}
	} else {
		if r.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return fmt.Errorf("generating key: %w", err)
		}
		if file != "" {
			text, err := keyutil.MarshalPrivateKeyToPEM(r.key)
			if err != nil {
				return fmt.Errorf("encoding key: %w", err)
			}
			if err := m.Write(file, string(text), 0o600); err != nil {
				return err
			}
		}
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: r.CommonName, Organization: r.organizations()}, DNSNames: r.DNSNames}
	for _, ip := range r.IPs {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, r.key)
	if err != nil {
		return fmt.Errorf("making certificate request: %w", err)
	}
	r.PEM = pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateRequestBlockType, Bytes: der})
	return nil
}

// rootsOf reads the certificates of a CA.
func rootsOf(m *machine.Machine, a certificates.Authority) (*x509.CertPool, error) {
	content, err := m.Load(path.Join(nodeconfig.KeysDir, a.File()))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(content)) {
		return nil, fmt.Errorf("reading %s: it contains no certificate", a.File())
	}
	return roots, nil
}

// FirstEnd returns when the first certificate of a machine that runs ends.
func FirstEnd(m *machine.Machine, want *nodeconfig.Certificates) (time.Time, error) {
	var first time.Time
	for _, c := range certificates.Of(false, want.ExternalEtcd) {
		stored, err := load(m, c)
		if err != nil {
			return first, fmt.Errorf("reading certificate %s: %w", c.Name, err)
		}
		if ends := stored.certificate.NotAfter; first.IsZero() || ends.Before(first) {
			first = ends
		}
	}
	return first, nil
}

// RejectAuthorities removes keys of CAs, and returns an error if there was one: kubeadm
// creates a CA if files are missing, and the cluster would trust it.
func RejectAuthorities(m *machine.Machine) error {
	var found []string
	err := filepath.WalkDir(m.At(nodeconfig.KeysDir), func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(entry.Name(), "ca.key") {
			found = append(found, strings.TrimPrefix(file, strings.TrimSuffix(m.At("/"), "/")))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("looking for keys of CAs: %w", err)
	}
	if len(found) == 0 {
		return nil
	}
	if err := m.Remove(found...); err != nil {
		return fmt.Errorf("removing keys of CAs: %w", err)
	}
	return fmt.Errorf("the machine had keys of CAs, which it must not have: %s", strings.Join(found, ", "))
}
