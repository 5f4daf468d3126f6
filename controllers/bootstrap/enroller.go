package bootstrap

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/puppet"
	"github.com/nova-platform/cluster-api-provider-nova/internal/enrollment"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// The Secret with the key that signs tokens for Puppet servers. Administrators copy the public key to
// the servers.
const (
	enrollmentSecret = "nova-bootstrap-configuration-manager"
	privateKey       = "private.pem"
	publicKey        = "public.pem"
)

// enroller issues the tokens with which nodes get certificates of Puppet servers.
type enroller struct {
	client client.Client
	// namespace is the namespace of the manager. Users must not read its Secrets: the key signs tokens
	// for nodes of all clusters.
	namespace string
	// revoker revokes the certificates of deleted machines.
	revoker *puppet.Revoker
}

// enroll issues a token if the platform has a configuration manager.
func (e *enroller) enroll(ctx context.Context, s *scope) error {
	p := platform(s.config, s.controlPlane)
	if p.ConfigurationManager.Server == "" {
		return nil
	}
	if e.namespace == "" {
		return reconcile.Blocked(bootstrapv1.RenderingFailedReason, "platform.configurationManager needs the flag --manager-namespace of nova-bootstrap")
	}
	if err := e.revoker.Hold(ctx, s.config); err != nil {
		return err //nolint:wrapcheck // it names the finalizer
	}
	key, err := e.key(ctx)
	if err != nil {
		return err
	}
	roles := bootstrap.Roles(&s.spec, s.mode != bootstrap.JoinWorker)
	identity := enrollment.Identity{
		Certname: enrollment.Certname(s.machine.Name, string(s.machine.UID)), Machine: string(s.machine.UID),
		Cluster: s.cluster.Namespace + "/" + s.cluster.Name, Role: string(roles[0]),
	}
	// The token expires with the credential, and is renewed with it. The machine that initializes the
	// cluster has no credential.
	token, err := enrollment.Issue(key, identity, time.Now(), cmp.Or(s.lifetime, DefaultCredentialTTL))
	if err != nil {
		return fmt.Errorf("issuing token for the Puppet server: %w", err)
	}
	s.enrollment = &bootstrap.Enrollment{Certname: identity.Certname, Token: token, Extensions: identity.Extensions()}
	return nil
}

// key returns the key of this management cluster, and creates it if there is none. If another
// reconcile does so first, its key is used.
func (e *enroller) key(ctx context.Context) (ed25519.PrivateKey, error) {
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: e.namespace, Name: enrollmentSecret}
	err := e.client.Get(ctx, name, secret)
	if apierrors.IsNotFound(err) {
		if secret, err = newKey(name); err == nil {
			err = e.client.Create(ctx, secret)
		}
		if apierrors.IsAlreadyExists(err) {
			err = e.client.Get(ctx, name, secret)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", enrollmentSecret, err)
	}
	block, _ := pem.Decode(secret.Data[privateKey])
	if block == nil {
		return nil, fmt.Errorf("reading Secret %s: %s is no key in PEM", enrollmentSecret, privateKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, is := parsed.(ed25519.PrivateKey)
	if !is {
		return nil, fmt.Errorf("reading Secret %s: %w", enrollmentSecret, errors.Join(err, errors.New("the key must be of type Ed25519")))
	}
	return key, nil
}

func newKey(name client.ObjectKey) (*corev1.Secret, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making key: %w", err)
	}
	encodedPrivate, err1 := x509.MarshalPKCS8PrivateKey(private)
	encodedPublic, err2 := x509.MarshalPKIXPublicKey(public)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("encoding key: %w", err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			privateKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encodedPrivate}),
			publicKey:  pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: encodedPublic}),
		},
	}, nil
}
