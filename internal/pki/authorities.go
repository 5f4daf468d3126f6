package pki

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/namespaces"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/vault"
)

// TokenFile has the token of the manager's service account with which it signs in: the
// kubelet renews it. Its audience is starvault.
const TokenFile = "/var/run/secrets/nova-platform.io/starvault/token"

// etcdPairTTL is the validity of a client certificate for etcd that a vault signs.
const etcdPairTTL = 24 * time.Hour

// IdentityError means that a cluster cannot use its NovaStarVaultIdentity. It persists
// until a user corrects one of them.
type IdentityError struct{ problem string }

// Error implements error.
func (e *IdentityError) Error() string { return e.problem }

func unusable(format string, args ...any) error {
	return &IdentityError{problem: fmt.Sprintf(format, args...)}
}

// Authorities finds the StarVault of each cluster, if its NovaControlPlane has one.
type Authorities struct {
	// Kube reads through the cache, except Secrets, and writes the Secrets of the
	// contract.
	Kube client.Client
	// Namespace is the manager's own, and Manager its name, which is the default role.
	Namespace, Manager string
	// TokenFile has the token of the manager's service account.
	TokenFile string

	mu sync.Mutex
	// clients are the clients of vaults by identity.
	clients map[string]signedIn
	// etcd are the client certificates for etcd that a vault has signed: etcd is queried
	// often, and an idle cluster sends nothing to the vault.
	etcd reconcile.Memory[client.ObjectKey, etcdPair]
}

// etcdPair is a client certificate for etcd.
type etcdPair struct {
	name string
	pair KeyPair
	ca   []byte
	// renewAt is when another one is needed.
	renewAt time.Time
}

// signedIn is a client of a vault for one version of an identity and its Secret.
type signedIn struct {
	version string
	client  *vault.Client
}

var (
	_ Authority = &Authorities{}
	_ Signer    = &Authorities{}
	_ Rotator   = &Authorities{}
)

// of returns the authority of a cluster.
func (a *Authorities) of(ctx context.Context, key client.ObjectKey) (*Managed, error) {
	managed := NewManaged(a.Kube)
	controlPlane, err := a.controlPlane(ctx, key)
	if err != nil || controlPlane == nil || controlPlane.Spec.Platform.PKI.StarVault.IdentityName == "" {
		return managed, err
	}
	identity, err := a.identity(ctx, key.Namespace, controlPlane.Spec.Platform.PKI.StarVault.IdentityName)
	if err != nil {
		return nil, err
	}
	name := key.Namespace + "." + key.Name
	spec := &identity.Spec
	managed.vault = &StarVault{
		connect: func(ctx context.Context) (*vault.Client, error) { return a.clientOf(ctx, identity) }, now: managed.now, external: len(controlPlane.Spec.Etcd.External.Endpoints) > 0,
		site: site{
			server: "https://" + spec.Server, namespace: spec.Namespace, bundle: []byte(spec.CABundle),
			mounts: spec.GetMountPath() + "/" + name, nodes: spec.GetNodesAuthPath(), role: name,
		},
	}
	return managed, nil
}

// controlPlane returns the NovaControlPlane of a cluster; nil if it has another one.
func (a *Authorities) controlPlane(ctx context.Context, key client.ObjectKey) (*controlplanev1.NovaControlPlane, error) {
	cluster := &clusterv1.Cluster{}
	if err := a.Kube.Get(ctx, key, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // nil means that there is none
		}
		return nil, fmt.Errorf("reading Cluster: %w", err)
	}
	ref := cluster.Spec.ControlPlaneRef
	if ref.Kind != "NovaControlPlane" || ref.APIGroup != controlplanev1.GroupVersion.Group {
		return nil, nil //nolint:nilnil // nil means that there is none
	}
	found := &controlplanev1.NovaControlPlane{}
	if err := a.Kube.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: ref.Name}, found); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // nil means that there is none
		}
		return nil, fmt.Errorf("reading NovaControlPlane: %w", err)
	}
	return found, nil
}

// identity returns an identity that allows a namespace.
func (a *Authorities) identity(ctx context.Context, namespace, name string) (*controlplanev1.NovaStarVaultIdentity, error) {
	identity := &controlplanev1.NovaStarVaultIdentity{}
	if err := a.Kube.Get(ctx, client.ObjectKey{Name: name}, identity); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, unusable("NovaStarVaultIdentity %q does not exist", name)
		}
		return nil, fmt.Errorf("reading NovaStarVaultIdentity: %w", err)
	}
	of := identity.Spec.AllowedNamespaces
	allowed, err := namespaces.Allowed(ctx, a.Kube, of.List, of.Selector, namespace)
	if malformed, is := errors.AsType[*namespaces.SelectorError](err); is {
		return nil, unusable("spec.allowedNamespaces.selector of NovaStarVaultIdentity %q is not valid: %s", name, malformed)
	}
	if err != nil {
		return nil, err
	}
	if !allowed {
		return nil, unusable("NovaStarVaultIdentity %q does not allow the namespace %q: its spec.allowedNamespaces neither lists nor selects it", name, namespace)
	}
	return identity, nil
}

// clientOf returns the client of an identity. It stays until the identity or its Secret
// changes.
func (a *Authorities) clientOf(ctx context.Context, identity *controlplanev1.NovaStarVaultIdentity) (*vault.Client, error) {
	auth := identity.Spec.Auth
	s := &corev1.Secret{}
	if auth.Method != controlplanev1.VaultKubernetes {
		key := client.ObjectKey{Namespace: a.Namespace, Name: auth.SecretRef.Name}
		if err := a.Kube.Get(ctx, key, s); err != nil {
			if apierrors.IsNotFound(err) {
				return nil, unusable("Secret %q of NovaStarVaultIdentity %q does not exist in namespace %q", key.Name, identity.Name, key.Namespace)
			}
			return nil, fmt.Errorf("reading the Secret of NovaStarVaultIdentity %s: %w", identity.Name, err)
		}
	}
	version := strings.Join([]string{string(identity.UID), identity.ResourceVersion, string(s.UID), s.ResourceVersion}, "/")
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, is := a.clients[identity.Name]; is && known.version == version {
		return known.client, nil
	}
	credentials, err := a.credentials(identity, s)
	if err != nil {
		return nil, err
	}
	connection, err := vault.New(vault.Config{
		Server: "https://" + identity.Spec.Server, Namespace: identity.Spec.Namespace, CABundle: []byte(identity.Spec.CABundle), Credentials: credentials,
	})
	if err != nil {
		return nil, unusable("NovaStarVaultIdentity %q: %s", identity.Name, err)
	}
	if a.clients == nil {
		a.clients = map[string]signedIn{}
	}
	a.clients[identity.Name] = signedIn{version: version, client: connection}
	return connection, nil
}

// credentials returns the credentials of an identity.
func (a *Authorities) credentials(identity *controlplanev1.NovaStarVaultIdentity, s *corev1.Secret) (vault.Credentials, error) {
	auth := identity.Spec.Auth
	c := vault.Credentials{Role: cmp.Or(auth.Role, a.Manager)}
	if auth.Method == controlplanev1.VaultKubernetes {
		c.Method, c.Path = vault.Kubernetes, cmp.Or(auth.Path, string(vault.Kubernetes))
		c.Token = a.token
		return c, nil
	}
	key := client.ObjectKeyFromObject(s)
	if auth.Method == controlplanev1.VaultAppRole {
		c.Method, c.Path = vault.AppRole, cmp.Or(auth.Path, string(vault.AppRole))
		c.RoleID, c.SecretID = string(s.Data["roleID"]), string(s.Data["secretID"])
		if c.RoleID == "" || c.SecretID == "" {
			return c, unusable("Secret %q in namespace %q must have the keys roleID and secretID", key.Name, key.Namespace)
		}
		return c, nil
	}
	c.Method, c.Path = vault.Certificate, cmp.Or(auth.Path, string(vault.Certificate))
	pair, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return c, unusable("Secret %q in namespace %q must have the keys tls.crt and tls.key with a certificate and its key", key.Name, key.Namespace)
	}
	c.Pair = &pair
	return c, nil
}

// token returns the token of the manager's service account.
func (a *Authorities) token() (string, error) {
	token, err := os.ReadFile(a.TokenFile)
	if err != nil {
		return "", fmt.Errorf("reading the token of the service account: %w", err)
	}
	return strings.TrimSpace(string(token)), nil
}

// Ensure implements Authority.
func (a *Authorities) Ensure(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference, validity time.Duration) error {
	chosen, err := a.of(ctx, cluster)
	if err != nil {
		return err
	}
	return chosen.Ensure(ctx, cluster, owner, validity)
}

// Check implements Authority.
func (a *Authorities) Check(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference) error {
	chosen, err := a.of(ctx, cluster)
	if err != nil {
		return err
	}
	return chosen.Check(ctx, cluster, owner)
}

// ClusterCA implements Authority.
func (a *Authorities) ClusterCA(ctx context.Context, cluster client.ObjectKey) ([]byte, error) {
	chosen, err := a.of(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return chosen.ClusterCA(ctx, cluster)
}

// Client implements Authority.
func (a *Authorities) Client(ctx context.Context, cluster client.ObjectKey, request ClientRequest) (KeyPair, error) {
	chosen, err := a.of(ctx, cluster)
	if err != nil {
		return KeyPair{}, err
	}
	return chosen.Client(ctx, cluster, request)
}

// EtcdClient implements Authority.
func (a *Authorities) EtcdClient(ctx context.Context, cluster client.ObjectKey, request ClientRequest) (pair KeyPair, ca []byte, err error) {
	chosen, err := a.of(ctx, cluster)
	if err != nil {
		return KeyPair{}, nil, err
	}
	if chosen.vault == nil {
		return chosen.EtcdClient(ctx, cluster, request)
	}
	l, err := chosen.load(ctx, cluster, purposes[certificates.Etcd])
	if err != nil {
		return KeyPair{}, nil, err
	}
	if l.vault == nil {
		return chosen.EtcdClient(ctx, cluster, request)
	}
	known, _ := a.etcd.Get(cluster)
	if known.name == request.CommonName && bytes.Equal(known.ca, l.pair.Certificate) && time.Now().Before(known.renewAt) {
		return known.pair, known.ca, nil
	}
	request.TTL = etcdPairTTL
	if pair, ca, err = chosen.EtcdClient(ctx, cluster, request); err != nil {
		return KeyPair{}, nil, err
	}
	a.etcd.ForgetIf(func(_ client.ObjectKey, p etcdPair) bool { return time.Now().After(p.renewAt) })
	a.etcd.Set(cluster, etcdPair{name: request.CommonName, pair: pair, ca: ca, renewAt: time.Now().Add(etcdPairTTL / 2)}) //nolint:mnd // at half of its life
	return pair, ca, nil
}

// ControlPlaneFiles implements Authority.
func (a *Authorities) ControlPlaneFiles(ctx context.Context, cluster client.ObjectKey) ([]File, error) {
	chosen, err := a.of(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return chosen.ControlPlaneFiles(ctx, cluster)
}

// Signs implements Signer.
func (a *Authorities) Signs(ctx context.Context, cluster client.ObjectKey) (bool, error) {
	chosen, err := a.of(ctx, cluster)
	if err != nil {
		return false, err
	}
	return chosen.Signs(ctx, cluster)
}

// Sign implements Signer.
func (a *Authorities) Sign(ctx context.Context, cluster client.ObjectKey, request SignRequest) ([]byte, error) {
	chosen, err := a.of(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return chosen.Sign(ctx, cluster, request)
}

// NodeLogin implements Signer.
func (a *Authorities) NodeLogin(ctx context.Context, cluster client.ObjectKey, ttl time.Duration) (*NodeLogin, error) {
	chosen, err := a.of(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return chosen.NodeLogin(ctx, cluster, ttl)
}

// Rotation implements Rotator.
func (a *Authorities) Rotation(ctx context.Context, cluster client.ObjectKey) (*Rotation, error) {
	chosen, err := a.of(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return chosen.Rotation(ctx, cluster)
}

// Rotate implements Rotator.
func (a *Authorities) Rotate(ctx context.Context, cluster client.ObjectKey, step RotationStep, validity time.Duration) error {
	chosen, err := a.of(ctx, cluster)
	if err != nil {
		return err
	}
	return chosen.Rotate(ctx, cluster, step, validity)
}
