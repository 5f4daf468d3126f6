package pki

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

// pkiDir is the directory in which kubeadm looks for existing certificates.
const pkiDir = "/etc/kubernetes/pki"

// Managed stores the CAs in the contract's Secrets <cluster>-ca, -etcd, -proxy and -sa:
// with their keys, unless a StarVault has them.
type Managed struct {
	client client.Client
	now    func() time.Time
	// vault has the key of each CA whose Secret has none; nil if the cluster has no StarVault.
	vault *StarVault
}

var (
	_ Authority = &Managed{}
	_ Signer    = &Managed{}
	_ Rotator   = &Managed{}
)

// NewManaged returns an Authority with the Secrets that c can read.
func NewManaged(c client.Client) *Managed {
	return &Managed{client: c, now: time.Now}
}

// Ensure implements Authority. Every Secret is created only if it does not
// exist, so after a crash between two of them, or with two callers at once,
// there is one set. Nothing is requested from a vault once they exist.
func (m *Managed) Ensure(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference, validity time.Duration) error {
	validity = cmp.Or(validity, authorityLifetime)
	var inVault map[secret.Purpose][]byte
	if m.vault != nil {
		err := m.Check(ctx, cluster, owner)
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		if inVault, err = m.vault.ensure(ctx, validity); err != nil {
			return err
		}
	}
	var errs []error
	for _, mat := range materials {
		errs = append(errs, m.ensure(ctx, cluster, mat, owner, validity, inVault[mat.purpose]))
	}
	return errors.Join(errs...)
}

// ensure creates one Secret, with a certificate of a vault if there is one.
func (m *Managed) ensure(ctx context.Context, cluster client.ObjectKey, mat material, owner metav1.OwnerReference, validity time.Duration, inVault []byte) error {
	err := m.check(ctx, cluster, mat, owner)
	if !errors.Is(err, ErrNotFound) || mat.isCA() && m.vault != nil && m.vaultOf(mat) == nil {
		return err
	}
	pair := KeyPair{Certificate: inVault}
	if len(inVault) == 0 {
		if pair, err = generate(mat, m.now(), validity); err != nil {
			return fmt.Errorf("generating %s: %w", secret.Name(cluster.Name, mat.purpose), err)
		}
	}
	err = m.create(ctx, cluster, mat, owner, pair)
	if apierrors.IsAlreadyExists(err) {
		// Another caller has created the Secret: it is used if it is valid.
		_, err = m.load(ctx, cluster, mat)
		return err
	}
	if err != nil {
		return fmt.Errorf("creating Secret %s: %w", secret.Name(cluster.Name, mat.purpose), err)
	}
	return nil
}

// create creates one Secret. A CA whose key is elsewhere has none in its pair.
func (m *Managed) create(ctx context.Context, cluster client.ObjectKey, mat material, owner metav1.OwnerReference, pair KeyPair) error {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       cluster.Namespace,
			Name:            secret.Name(cluster.Name, mat.purpose),
			Labels:          map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{secret.TLSCrtDataName: pair.Certificate},
	}
	if len(pair.Key) > 0 {
		s.Data[secret.TLSKeyDataName] = pair.Key
	}
	return m.client.Create(ctx, s) //nolint:wrapcheck // the callers name the Secret
}

// Check implements Authority.
func (m *Managed) Check(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference) error {
	var errs []error
	var external error
	for _, mat := range materials {
		err := m.check(ctx, cluster, mat, owner)
		switch {
		case errors.Is(err, ErrExternalClient):
			external = err
		case err != nil:
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		// With other problems, the client of external etcd does not matter.
		return errors.Join(errs...)
	}
	return external
}

// check checks one Secret and restores its owner if it was created here.
func (m *Managed) check(ctx context.Context, cluster client.ObjectKey, mat material, owner metav1.OwnerReference) error {
	found, err := m.load(ctx, cluster, mat)
	if err != nil || found.secret == nil {
		return err
	}
	return Adopt(ctx, m.client, found.secret, cluster.Name, owner)
}

// ClusterCA implements Authority.
func (m *Managed) ClusterCA(ctx context.Context, cluster client.ObjectKey) ([]byte, error) {
	ca, err := m.load(ctx, cluster, materials[0])
	if err != nil {
		return nil, err
	}
	return ca.pair.Certificate, nil
}

// Client implements Authority.
func (m *Managed) Client(ctx context.Context, cluster client.ObjectKey, request ClientRequest) (KeyPair, error) {
	ca, err := m.load(ctx, cluster, materials[0])
	if err != nil {
		return KeyPair{}, err
	}
	return ca.issueClient(ctx, certificates.Kubernetes, request, m.now())
}

// EtcdClient implements Authority.
func (m *Managed) EtcdClient(ctx context.Context, cluster client.ObjectKey, request ClientRequest) (KeyPair, []byte, error) {
	ca, err := m.load(ctx, cluster, materials[1])
	if err != nil {
		return KeyPair{}, nil, err
	}
	if ca.client != nil {
		// External etcd has one client certificate and no key to sign another.
		return *ca.client, ca.pair.Certificate, nil
	}
	pair, err := ca.issueClient(ctx, certificates.Etcd, request, m.now())
	if err != nil {
		return KeyPair{}, nil, err
	}
	return pair, ca.pair.Certificate, nil
}

// ControlPlaneFiles implements Authority. All nodes get the same files.
func (m *Managed) ControlPlaneFiles(ctx context.Context, cluster client.ObjectKey) ([]File, error) {
	files := make([]File, 0, 2*len(materials)+1)
	for _, mat := range materials {
		loaded, err := m.load(ctx, cluster, mat)
		if err != nil {
			return nil, err
		}
		files = append(files, loaded.files(mat)...)
	}
	return files, nil
}

// Signs implements Signer. Since a rotation of its CAs, nodes of a cluster have no keys of
// CAs, wherever these are.
func (m *Managed) Signs(ctx context.Context, cluster client.ObjectKey) (bool, error) {
	ca, err := m.load(ctx, cluster, materials[0])
	if err != nil {
		return false, err
	}
	_, rotated := ca.secret.Annotations[ChangedAnnotation]
	return rotated || ca.vault != nil, nil
}

// Sign implements Signer.
func (m *Managed) Sign(ctx context.Context, cluster client.ObjectKey, request SignRequest) ([]byte, error) {
	ca, err := m.load(ctx, cluster, purposes[request.Authority])
	if err != nil {
		return nil, err
	}
	if ca.vault != nil {
		return ca.vault.sign(ctx, ca.certificate, request)
	}
	return ca.signRequest(&request, m.now())
}

// NodeLogin implements Signer. kubeadm makes the certificates if the keys of the CAs are here.
func (m *Managed) NodeLogin(ctx context.Context, cluster client.ObjectKey, ttl time.Duration) (*NodeLogin, error) {
	ca, err := m.load(ctx, cluster, materials[0])
	if err != nil || ca.vault == nil {
		return nil, err
	}
	return ca.vault.nodeLogin(ctx, ttl)
}

// vaultOf returns the vault that has the keys of CAs whose Secrets have none; nil if they are
// a user's.
func (m *Managed) vaultOf(mat material) *StarVault {
	if m.vault == nil || !mat.isCA() || m.vault.external && mat.purpose == secret.EtcdCA {
		return nil
	}
	return m.vault
}

// load reads and checks one Secret. It returns ErrNotFound if the Secret does
// not exist.
func (m *Managed) load(ctx context.Context, cluster client.ObjectKey, mat material) (*loaded, error) {
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, mat.purpose)}
	s := &corev1.Secret{}
	if err := m.client.Get(ctx, key, s); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading Secret %s: %w", key.Name, ErrNotFound)
		}
		return nil, fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	pair := KeyPair{Certificate: s.Data[secret.TLSCrtDataName], Key: s.Data[secret.TLSKeyDataName]}
	vault := m.vaultOf(mat)
	var parsed *loaded
	var problem string
	switch {
	case vault != nil && len(pair.Key) == 0:
		parsed = &loaded{pair: pair, vault: vault}
		parsed.certificate, problem = parseAuthority(pair.Certificate, m.now())
	case vault != nil && s.Type != clusterv1.ClusterSecretType:
		problem = "tls.key must not be set: StarVault has the key of the CA"
	case mat.purpose == secret.EtcdCA && len(pair.Key) == 0 && len(pair.Certificate) > 0:
		return m.loadExternal(ctx, cluster, key, pair.Certificate)
	default:
		parsed, problem = parse(mat, pair, m.now())
	}
	if problem != "" {
		return nil, &InvalidCertificateError{Secret: key, Problem: problem}
	}
	parsed.secret = s
	return parsed, nil
}
