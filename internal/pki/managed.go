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
)

// pkiDir is the directory in which kubeadm looks for existing certificates.
const pkiDir = "/etc/kubernetes/pki"

// Managed stores the CAs with their keys in the contract's Secrets
// <cluster>-ca, -etcd, -proxy and -sa.
type Managed struct {
	client client.Client
	now    func() time.Time
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
// there is one set.
func (m *Managed) Ensure(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference, validity time.Duration) error {
	var errs []error
	for _, mat := range materials {
		if err := m.ensure(ctx, cluster, mat, owner, validity); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (m *Managed) ensure(ctx context.Context, cluster client.ObjectKey, mat material, owner metav1.OwnerReference, validity time.Duration) error {
	err := m.check(ctx, cluster, mat, owner)
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	pair, err := generate(mat, m.now(), cmp.Or(validity, authorityLifetime))
	if err != nil {
		return fmt.Errorf("generating %s: %w", secret.Name(cluster.Name, mat.purpose), err)
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
	return ca.sign(request, m.now())
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
	pair, err := ca.sign(request, m.now())
	if err != nil {
		return KeyPair{}, nil, err
	}
	return pair, ca.pair.Certificate, nil
}

// ControlPlaneFiles implements Authority. All nodes get the same files.
func (m *Managed) ControlPlaneFiles(ctx context.Context, cluster client.ObjectKey) ([]File, error) {
	return m.filesOf(ctx, cluster, materials)
}

func (m *Managed) filesOf(ctx context.Context, cluster client.ObjectKey, of []material) ([]File, error) {
	files := make([]File, 0, 2*len(of)+1)
	for _, mat := range of {
		loaded, err := m.load(ctx, cluster, mat)
		if err != nil {
			return nil, err
		}
		files = append(files, loaded.files(mat)...)
	}
	return files, nil
}

// Signs implements Signer. Since a rotation of its CAs, a cluster has their keys only here.
func (m *Managed) Signs(ctx context.Context, cluster client.ObjectKey) (bool, error) {
	ca, err := m.load(ctx, cluster, materials[0])
	if err != nil {
		return false, err
	}
	_, rotated := ca.secret.Annotations[ChangedAnnotation]
	return rotated, nil
}

// Sign implements Signer.
func (m *Managed) Sign(ctx context.Context, cluster client.ObjectKey, request SignRequest) ([]byte, error) {
	ca, err := m.load(ctx, cluster, purposes[request.Authority])
	if err != nil {
		return nil, err
	}
	return ca.signRequest(&request, m.now())
}

// NodeLogin implements Signer. kubeadm makes the certificates.
func (m *Managed) NodeLogin(context.Context, client.ObjectKey, time.Duration) (*NodeLogin, error) {
	return nil, nil //nolint:nilnil // nil means that none is needed
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
	if mat.purpose == secret.EtcdCA && len(pair.Key) == 0 && len(pair.Certificate) > 0 {
		return m.loadExternal(ctx, cluster, key, pair.Certificate)
	}
	parsed, problem := parse(mat, pair, m.now())
	if problem != "" {
		return nil, &InvalidCertificateError{Secret: key, Problem: problem}
	}
	parsed.secret = s
	return parsed, nil
}
