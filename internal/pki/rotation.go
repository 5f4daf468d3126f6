package pki

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

const (
	// ChangedAnnotation on Secret <cluster>-ca is the time at which the CAs of a rotation
	// changed last. Control plane machines of a cluster that has it have no keys of CAs.
	ChangedAnnotation = "controlplane.cluster.x-k8s.io/nova-authorities-changed"
	// otherKey has the key of the CA that does not sign.
	otherKey = "other.key"
)

// Rotator rotates the CAs of clusters.
type Rotator interface {
	// Rotation reads the state of the CAs. It returns ErrNotFound until they exist.
	Rotation(ctx context.Context, cluster client.ObjectKey) (*Rotation, error)
	// Rotate carries out a step. It can be repeated after an interruption. A cluster
	// whose CAs are a user's is a RotationRefusedError.
	Rotate(ctx context.Context, cluster client.ObjectKey, step RotationStep, validity time.Duration) error
}

// Rotation is the state of the CAs of a cluster.
type Rotation struct {
	// Changed is when they changed last; zero if they were never rotated. ID, and all
	// but one of Bundles and CAs, are empty then.
	Changed time.Time
	// ID identifies the CAs that machines trust, and which of them sign.
	ID string
	// Bundles are the certificates in PEM. The first one is that of the CA that signs.
	Bundles map[certificates.Authority][]byte
	// CAs are the certificates of each CA.
	CAs map[certificates.Authority]Generations
	// Moves is true if the keys of the CAs are in Secrets, and those of the next ones are
	// to be in a StarVault.
	Moves bool
}

// Generations are the certificates of one CA.
type Generations struct {
	// Signing is that of the key that signs, and Other that of the one that is only
	// trusted; nil if there is none.
	Signing, Other *x509.Certificate
}

// Made returns when a CA was made: its validity begins earlier, for slow clocks.
func Made(ca *x509.Certificate) time.Time { return ca.NotBefore.Add(clockSkew) }

// RotationStep is a step of a rotation.
type RotationStep string

const (
	// AddAuthorities makes a second CA, which machines only trust.
	AddAuthorities RotationStep = "AddAuthorities"
	// SwapAuthorities lets the newer CA sign.
	SwapAuthorities RotationStep = "SwapAuthorities"
	// UnswapAuthorities lets the older CA sign again.
	UnswapAuthorities RotationStep = "UnswapAuthorities"
	// DropAuthorities removes the CA that does not sign.
	DropAuthorities RotationStep = "DropAuthorities"
)

// RotationRefusedError means that the CAs of a cluster cannot be rotated.
type RotationRefusedError struct{ problem string }

// Error implements error.
func (e *RotationRefusedError) Error() string { return e.problem }

// rotated are the CAs in the order in which a step changes them: that of the cluster is
// the last one, because its Secret has the time.
var rotated = []certificates.Authority{certificates.FrontProxy, certificates.Etcd, certificates.Kubernetes}

// Rotation implements Rotator.
func (m *Managed) Rotation(ctx context.Context, cluster client.ObjectKey) (*Rotation, error) {
	r := &Rotation{Bundles: map[certificates.Authority][]byte{}, CAs: map[certificates.Authority]Generations{}}
	sum := sha256.New()
	for _, a := range slices.Backward(rotated) {
		l, err := m.load(ctx, cluster, purposes[a])
		if err != nil {
			return nil, err
		}
		if l.secret == nil {
			continue // external etcd, whose CA a user rotates
		}
		r.Moves = r.Moves || m.vault != nil && l.vault == nil
		bundle := l.pair.Certificate
		if r.CAs[a], err = generationsOf(bundle); err != nil {
			return nil, &InvalidCertificateError{Secret: client.ObjectKeyFromObject(l.secret), Problem: err.Error()}
		}
		if a == certificates.Kubernetes {
			if r.Changed, err = changedAt(l.secret); err != nil {
				return nil, err
			}
			if r.Changed.IsZero() {
				return r, nil
			}
		}
		r.Bundles[a] = bundle
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", a, len(bundle), bundle)
	}
	const length = 8
	r.ID = hex.EncodeToString(sum.Sum(nil)[:length])
	return r, nil
}

// changedAt returns the time of ChangedAnnotation; zero if it is not set.
func changedAt(s *corev1.Secret) (time.Time, error) {
	text, set := s.Annotations[ChangedAnnotation]
	if !set {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, &InvalidCertificateError{Secret: client.ObjectKeyFromObject(s), Problem: "annotation " + ChangedAnnotation + " is no time"}
	}
	return at, nil
}

// generationsOf returns the CAs of a bundle. A cross certificate has the key of one of
// them.
func generationsOf(bundle []byte) (g Generations, err error) {
	all, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return g, errors.New("tls.crt has no certificate in PEM, or one that cannot be read")
	}
	g.Signing = all[0]
	for _, c := range all[1:] {
		if g.Other == nil && !samePublicKey(c.PublicKey, g.Signing.PublicKey) {
			g.Other = c
		}
	}
	return g, nil
}

// Rotate implements Rotator. Each Secret is changed at once, with its keys. A new CA has
// its key in the vault of the cluster if it has one, wherever that of the former CA is.
func (m *Managed) Rotate(ctx context.Context, cluster client.ObjectKey, step RotationStep, validity time.Duration) error {
	all := map[certificates.Authority]*loaded{}
	for _, a := range rotated {
		l, err := m.load(ctx, cluster, purposes[a])
		if err != nil {
			return err
		}
		if l.secret == nil {
			continue // external etcd
		}
		if len(l.secret.OwnerReferences) == 0 {
			return &RotationRefusedError{fmt.Sprintf("Secret %s was created by a user, who has to replace it", l.secret.Name)}
		}
		all[a] = l
	}
	changed := false
	for _, a := range rotated {
		l := all[a]
		if l == nil {
			continue
		}
		did, err := m.rotate(ctx, a, l, step, cmp.Or(validity, authorityLifetime))
		if err != nil {
			return fmt.Errorf("rotating %s: %w", l.secret.Name, err)
		}
		if changed = changed || did; a == certificates.Kubernetes && changed {
			metav1.SetMetaDataAnnotation(&l.secret.ObjectMeta, ChangedAnnotation, m.now().UTC().Format(time.RFC3339))
			did = true
		}
		if !did {
			continue
		}
		if err := m.client.Update(ctx, l.secret); err != nil {
			return fmt.Errorf("writing Secret %s: %w", l.secret.Name, err)
		}
	}
	return nil
}

// rotate changes the content of a Secret, unless it is changed already. The vault is
// changed before, and a change that it has already is not repeated.
func (m *Managed) rotate(ctx context.Context, a certificates.Authority, l *loaded, step RotationStep, validity time.Duration) (bool, error) {
	g, err := generationsOf(l.pair.Certificate)
	if err != nil {
		return false, err
	}
	switch step {
	case AddAuthorities:
		if g.Other == nil {
			return true, m.add(ctx, a, l, validity)
		}
	case SwapAuthorities, UnswapAuthorities:
		if g.Other != nil && g.Other.NotBefore.After(g.Signing.NotBefore) == (step == SwapAuthorities) {
			return true, m.swap(ctx, a, l, g, step)
		}
	case DropAuthorities:
		if g.Other != nil {
			return true, m.drop(ctx, a, l, g)
		}
	}
	return false, nil
}

// add makes a second CA.
func (m *Managed) add(ctx context.Context, a certificates.Authority, l *loaded, validity time.Duration) (err error) {
	data := l.secret.Data
	if _, kept := data[SnapshotsKey]; a == certificates.Etcd && !kept && l.key != nil {
		if data[SnapshotsKey], err = DeriveSnapshotsKey(l.pair.Key); err != nil {
			return fmt.Errorf("keeping the key of snapshots: %w", err)
		}
	}
	var made KeyPair
	if m.vault != nil {
		made.Certificate, err = m.vault.next(ctx, a, l, validity)
	} else {
		made, err = generate(purposes[a], m.now(), validity)
	}
	if err != nil {
		return err
	}
	data[secret.TLSCrtDataName] = slices.Concat(certs.EncodeCertPEM(l.certificate), made.Certificate)
	setKey(data, otherKey, made.Key)
	return nil
}

// swap lets the other CA sign.
func (m *Managed) swap(ctx context.Context, a certificates.Authority, l *loaded, g Generations, step RotationStep) error {
	data := l.secret.Data
	key, other := data[secret.TLSKeyDataName], data[otherKey]
	if len(other) == 0 && m.vault == nil {
		return fmt.Errorf("key %s is missing", otherKey)
	}
	bundle := slices.Concat(certs.EncodeCertPEM(g.Other), certs.EncodeCertPEM(g.Signing))
	if step == SwapAuthorities && a == certificates.Kubernetes {
		cross, err := l.cross(ctx, g.Other)
		if err != nil {
			return err
		}
		bundle = append(bundle, cross...)
	}
	if len(other) == 0 {
		if err := m.vault.setDefault(ctx, a, g.Other); err != nil {
			return err
		}
	}
	data[secret.TLSCrtDataName] = bundle
	setKey(data, secret.TLSKeyDataName, other)
	setKey(data, otherKey, key)
	return nil
}

// drop removes the other CA.
func (m *Managed) drop(ctx context.Context, a certificates.Authority, l *loaded, g Generations) error {
	data := l.secret.Data
	if len(data[otherKey]) == 0 && m.vault != nil {
		if err := m.vault.remove(ctx, a, g.Other); err != nil {
			return err
		}
	}
	data[secret.TLSCrtDataName] = certs.EncodeCertPEM(g.Signing)
	delete(data, otherKey)
	return nil
}

// setKey sets a key of a Secret, or removes it if its value is elsewhere.
func setKey(data map[string][]byte, name string, value []byte) {
	if len(value) == 0 {
		delete(data, name)
		return
	}
	data[name] = value
}

// cross returns the certificate of another CA signed by this one. API servers send it with
// their own: programs that read the CAs only when they start know just this one.
func (l *loaded) cross(ctx context.Context, other *x509.Certificate) ([]byte, error) {
	if l.vault != nil {
		return l.vault.cross(ctx, l.certificate, other)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: other.Subject, NotBefore: other.NotBefore, KeyUsage: other.KeyUsage, BasicConstraintsValid: true, IsCA: true,
		NotAfter: slices.MinFunc([]time.Time{other.NotAfter, l.certificate.NotAfter}, time.Time.Compare), SubjectKeyId: other.SubjectKeyId,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, l.certificate, other.PublicKey, l.key)
	if err != nil {
		return nil, fmt.Errorf("signing certificate: %w", err)
	}
	return certs.EncodeCertPEM(&x509.Certificate{Raw: der}), nil
}
