package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
)

// credentialsMapper finds the clusters that a change of credentials affects, so that a rotation takes
// effect at once.
type credentialsMapper[C Object] struct {
	reader   client.Reader
	clusters client.ObjectList
	identity func(C) (kind, name string)
	// kind and identities are the kind and the list type of identities. If not set, there are no
	// identities. Their Secrets are in namespace.
	kind       string
	identities client.ObjectList
	namespace  string
}

// addIdentityKind adds a kind of identity.
func (u *credentialsMapper[C]) addIdentityKind(scheme *runtime.Scheme, identity credentials.Identity) error {
	gvk, err := apiutil.GVKForObject(identity, scheme)
	if err != nil {
		return fmt.Errorf("finding kind of identity: %w", err)
	}
	u.kind = gvk.Kind
	u.identities, err = reconcile.ListFor(scheme, identity)
	return err
}

// ofSecret maps a Secret to the clusters whose credentials are in it.
func (u *credentialsMapper[C]) ofSecret(ctx context.Context, secret client.Object) []ctrl.Request {
	found := u.of(ctx, secret.GetNamespace(), infrav1.SecretIdentityKind, secret.GetName())
	if u.kind == "" || secret.GetNamespace() != u.namespace {
		return found
	}
	identities, err := u.allIdentities(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Mapping Secret to identities")
	}
	for _, i := range identities {
		if i.Common().CredentialsSecretRef.Name == secret.GetName() {
			found = append(found, u.ofIdentity(ctx, i)...)
		}
	}
	return found
}

// allIdentities returns all identities, without a copy of each.
func (u *credentialsMapper[C]) allIdentities(ctx context.Context) ([]credentials.Identity, error) {
	found, err := reconcile.Select(ctx, u.reader, u.identities, metav1.NamespaceNone, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var identities []credentials.Identity
	for _, o := range found {
		if i, ok := o.(credentials.Identity); ok {
			identities = append(identities, i)
		}
	}
	return identities, nil
}

// ofIdentity maps an identity to the clusters of all namespaces that reference it, whether the
// identity allows them or not.
func (u *credentialsMapper[C]) ofIdentity(ctx context.Context, identity client.Object) []ctrl.Request {
	return u.of(ctx, metav1.NamespaceAll, u.kind, identity.GetName())
}

// inNamespace maps a namespace, whose labels an identity may select, to its clusters that reference an
// identity.
func (u *credentialsMapper[C]) inNamespace(ctx context.Context, namespace client.Object) []ctrl.Request {
	return u.of(ctx, namespace.GetName(), u.kind, "")
}

// of returns the clusters in a namespace that reference credentials of a kind. If name is not set, it
// returns all that reference the kind.
func (u *credentialsMapper[C]) of(ctx context.Context, namespace, kind, name string) []ctrl.Request {
	// All namespaces are listed, without a copy of each object: a cache that is limited to some
	// namespaces returns an error for any other namespace.
	found, err := reconcile.Select(ctx, u.reader, u.clusters, metav1.NamespaceAll, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Mapping credentials to clusters")
	}
	return reconcile.Requests(slices.DeleteFunc(found, func(o client.Object) bool {
		c, ok := o.(C)
		if !ok || namespace != metav1.NamespaceAll && c.GetNamespace() != namespace {
			return true
		}
		usedKind, usedName := u.identity(c)
		return cmp.Or(usedKind, infrav1.SecretIdentityKind) != kind || name != "" && usedName != name
	}))
}
