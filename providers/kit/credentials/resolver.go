package credentials

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/namespaces"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Identity is a cluster-scoped object that shares credentials.
type Identity interface {
	client.Object

	// Common returns the fields all identities share.
	Common() *infrav1.IdentitySpec
}

// Reference is a cluster's reference to credentials, and the cluster's own
// server.
type Reference struct {
	// Kind is Secret or the kind of identity. Defaults to Secret.
	Kind string
	// Name is the name of the Secret or identity.
	Name string
	// Server and TLS are the cluster's own. They are used with a Secret and
	// rejected with an identity.
	Server string
	TLS    infrav1.Trust
}

// Resolver reads the credentials that clusters refer to.
type Resolver struct {
	// Reader reads Secrets, identities and the metadata of namespaces. It must
	// read Secrets without a cache: the cache of a manager that is restricted
	// to one namespace has no Secrets of other namespaces, and other caches
	// store no content of Secrets.
	Reader client.Reader
	// Namespace is the manager's own, with the Secrets of identities. If not
	// set, identities cannot be used.
	Namespace string
	// Kind is the kind of identity, and NewIdentity returns an empty one.
	Kind        string
	NewIdentity func() Identity
}

// Resolve returns the credentials that ref names for a cluster in namespace,
// with their server. An error that a user must fix is an Error with the reason
// CredentialsInvalid.
func (r *Resolver) Resolve(ctx context.Context, namespace string, ref Reference) (Login, error) {
	switch cmp.Or(ref.Kind, infrav1.SecretIdentityKind) {
	case infrav1.SecretIdentityKind:
		if ref.Server == "" {
			return Login{}, invalid("spec.server is not set: Secret %q holds only user name and password", ref.Name)
		}
		account, err := r.read(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name})
		if err != nil {
			return Login{}, err
		}
		return Login{Account: account, Server: ref.Server, TLS: ref.TLS}, nil
	case r.Kind:
		if ref.Server != "" || ref.TLS != (infrav1.Trust{}) {
			return Login{}, invalid("spec.server and spec.tls must not be set with %s %q: they come from the identity", r.Kind, ref.Name)
		}
		return r.borrow(ctx, namespace, ref.Name)
	default:
		return Login{}, invalid("the identityRef's kind is %q; it can be %s or %s", ref.Kind, infrav1.SecretIdentityKind, r.Kind)
	}
}

// borrow returns credentials and server of an identity that allows namespace.
func (r *Resolver) borrow(ctx context.Context, namespace, name string) (Login, error) {
	identity := r.NewIdentity()
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, identity); err != nil {
		if apierrors.IsNotFound(err) {
			return Login{}, invalid("%s %q does not exist", r.Kind, name)
		}
		return Login{}, fmt.Errorf("reading %s: %w", r.Kind, err)
	}
	allowed, err := r.allows(ctx, identity, namespace)
	if err != nil {
		return Login{}, err
	}
	if !allowed {
		return Login{}, invalid("%s %q does not allow the namespace %q: its spec.allowedNamespaces neither lists nor selects it", r.Kind, name, namespace)
	}
	if r.Namespace == "" {
		return Login{}, invalid("%s %q cannot be used: the manager does not know its own namespace; set POD_NAMESPACE or --manager-namespace", r.Kind, name)
	}
	spec := identity.Common()
	account, err := r.read(ctx, client.ObjectKey{Namespace: r.Namespace, Name: spec.CredentialsSecretRef.Name})
	if err != nil {
		return Login{}, err
	}
	return Login{Account: account, Server: spec.Server, TLS: spec.TLS, Identity: identity}, nil
}

// allows reports whether clusters in namespace may use identity.
func (r *Resolver) allows(ctx context.Context, identity Identity, namespace string) (bool, error) {
	of := identity.Common().AllowedNamespaces
	allowed, err := namespaces.Allowed(ctx, r.Reader, of.List, of.Selector, namespace)
	if malformed, is := errors.AsType[*namespaces.SelectorError](err); is {
		return false, invalid("spec.allowedNamespaces.selector of %s %q is not valid: %w", r.Kind, identity.GetName(), malformed)
	}
	return allowed, err //nolint:wrapcheck // it names the namespace
}

// read returns the credentials in a Secret.
func (r *Resolver) read(ctx context.Context, key client.ObjectKey) (Account, error) {
	secret := &corev1.Secret{}
	if err := r.Reader.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return Account{}, invalid("Secret %q with the credentials does not exist in namespace %q", key.Name, key.Namespace)
		}
		return Account{}, fmt.Errorf("reading credentials: %w", err)
	}
	account := Account{Username: string(secret.Data["username"]), Password: string(secret.Data["password"])}
	if account.Username == "" || account.Password == "" {
		return Account{}, invalid("Secret %q in namespace %q must have the keys username and password", key.Name, key.Namespace)
	}
	return account, nil
}

func invalid(format string, args ...any) error {
	return &hypervisor.Error{Reason: infrav1.CredentialsInvalidReason, Err: fmt.Errorf(format, args...)}
}
