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
	// bundle are the certificates of its CA.
	bundle Bundle
	// renewedBefore is the time of a renewal.
	renewedBefore time.Time
	// signer is the signer of certificates of kubelets; empty for all others.
	signer string
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

// Due returns the names of the certificates that Ensure would replace if the node had these
// CAs.
func Due(m *machine.Machine, want *nodeconfig.Certificates, node Node, bundles Bundles) ([]string, error) {
	due, err := dueOf(m, want, node, time.Time{}, bundles)
	var names []string
	for _, r := range due {
		names = append(names, r.Certificate.Name)
	}
	return names, err
}

// dueOf returns requests for the certificates that are unusable, or end before a time.
func dueOf(m *machine.Machine, want *nodeconfig.Certificates, node Node, before time.Time, bundles Bundles) ([]*Request, error) {
	requests, err := requestsOf(want, node)
	if err != nil {
		return nil, err
	}
	var due []*Request
	for _, r := range requests {
		r.bundle, r.renewedBefore = bundles[r.Certificate.Authority], before
		if len(r.bundle) == 0 {
			return nil, fmt.Errorf("the node has no certificate of the CA %s", r.Certificate.Authority)
		}
		if stored, err := load(m, r.Certificate); err == nil && r.check(stored.certificate, stored.key.Public(), time.Now()) == nil && !stored.certificate.NotAfter.Before(before) {
			continue
		}
		due = append(due, r)
	}
	return due, nil
}

// replace replaces the certificates that are unusable, or end before a time.
func replace(ctx context.Context, m *machine.Machine, want *nodeconfig.Certificates, node Node, before time.Time, signer func() (Signer, error)) error {
	bundles, err := loadBundles(m, want.ExternalEtcd)
	if err != nil {
		return err
	}
	due, err := dueOf(m, want, node, before, bundles)
	if err != nil {
		return err
	}
	if len(due) > 0 {
		signed, err := sign(ctx, m, due, signer)
		if err != nil {
			return err
		}
		for i, r := range due {
			if err := r.write(m, want, node, signed[i]); err != nil {
				return fmt.Errorf("writing the certificate %s: %w", r.Certificate.Name, err)
			}
		}
	}
	changed, err := keepChain(m, bundles)
	if err != nil || len(due) == 0 && !changed {
		return err
	}
	return m.Flush(ctx)
}

// keepChain adds the certificate of the CA that another CA has signed to the file of the
// API server, or removes it, and reports whether it did. The certificate of the API server
// itself stays when a CA is dropped.
func keepChain(m *machine.Machine, bundles Bundles) (changed bool, err error) {
	file := path.Join(nodeconfig.KeysDir, certificates.APIServer+".crt")
	content, err := m.Load(file)
	if err != nil {
		return false, err
	}
	chain, err := certutil.ParseCertsPEM([]byte(content))
	if err != nil {
		return false, fmt.Errorf("reading the certificate of the API server: %w", err)
	}
	want := string(bundles[certificates.Kubernetes].chain(certificates.APIServer, chain[0]))
	if want == content {
		return false, nil
	}
	return true, m.Write(file, want, 0o644)
}

// sign makes the keys and has the certificates signed. All of them are checked before the
// first one is used.
func sign(ctx context.Context, m *machine.Machine, due []*Request, signer func() (Signer, error)) ([][]byte, error) {
	for _, r := range due {
		if err := r.prepare(m); err != nil {
			return nil, fmt.Errorf("making the key of %s: %w", r.Certificate.Name, err)
		}
	}
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	s, err := signer()
	if err != nil {
		return nil, err
	}
	signed, err := s.Sign(ctx, due)
	if err != nil {
		return nil, err
	}
	for i, r := range due {
		chain, err := certutil.ParseCertsPEM(signed[i])
		if err == nil {
			err = r.check(chain[0], r.key.Public(), time.Now())
		}
		if err != nil {
			return nil, fmt.Errorf("checking the certificate %s that was signed: %w", r.Certificate.Name, err)
		}
		signed[i] = r.bundle.chain(r.Certificate.Name, chain[0])
	}
	return signed, nil
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: c.Raw})
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
	found, err := AuthorityKeys(m)
	if err != nil || len(found) == 0 {
		return err
	}
	if err := m.Remove(found...); err != nil {
		return fmt.Errorf("removing keys of CAs: %w", err)
	}
	return fmt.Errorf("the machine had keys of CAs, which it must not have: %s", strings.Join(found, ", "))
}

// AuthorityKeys returns the files with keys of CAs.
func AuthorityKeys(m *machine.Machine) ([]string, error) {
	var found []string
	err := filepath.WalkDir(m.At(nodeconfig.KeysDir), func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(entry.Name(), "ca.key") {
			found = append(found, strings.TrimPrefix(file, strings.TrimSuffix(m.At("/"), "/")))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for keys of CAs: %w", err)
	}
	return found, nil
}
