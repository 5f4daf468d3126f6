package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
)

// secretProtector keeps the credentials Secrets of clusters until no cluster references them. The
// deletion of a namespace deletes Secrets first, and no new Secret can be created in it: VMs could not
// be deleted any more. A Secret that is being deleted is still read.
//
// The secretProtector decides by the existing objects, not by the last action of a cluster. So no
// Secret stays blocked after two clusters are deleted at once, a reference changes, clusterctl moves
// the objects, or the manager was down. A pause has no effect: the secretProtector changes no cluster,
// and a paused cluster has VMs as well.
type secretProtector[C Object] struct {
	// client reads all objects through the cache, except the metadata of Secrets, which it reads from
	// the API server.
	client    client.Client
	apiReader client.Reader
	clusters  client.ObjectList
	identity  func(C) (kind, name string)
	mapper    credentialsMapper[C]
	finalizer string
	// manager is the field manager of ensureMoves.
	manager string
	filter  string
}

// setupWithManager adds the controller to the manager.
func (k *secretProtector[C]) setupWithManager(mgr ctrl.Manager, infra C, identity client.Object, options controller.Options) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named(k.manager).
		WithOptions(reconcile.Options(options)).
		Watches(infra, handler.EnqueueRequestsFromMapFunc(k.ofCluster),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(k.ofSecret),
			builder.WithPredicates(predicate.ResourceVersionChangedPredicate{}))
	if identity != nil {
		b.Watches(identity, handler.EnqueueRequestsFromMapFunc(k.ofIdentity),
			builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	return b.Complete(k)
}

// Reconcile adds the finalizer to one Secret or removes it, and makes clusterctl move the Secret.
func (k *secretProtector[C]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := k.client.Get(ctx, req.NamespacedName, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading metadata of Secret: %w", err)
	}
	hasFinalizer := controllerutil.ContainsFinalizer(secret, k.finalizer)
	// All namespaces are listed: a cache that is limited to some namespaces returns an error for any
	// other namespace.
	by, err := k.useOf(ctx, k.client, metav1.NamespaceAll, req.NamespacedName)
	if err == nil && hasFinalizer && by == unused {
		// The cache may miss a new cluster: read again from the API server.
		by, err = k.useOf(ctx, k.apiReader, req.Namespace, req.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted := needsFinalizer(by, hasFinalizer, !secret.DeletionTimestamp.IsZero())
	if wanted && !hasFinalizer {
		return k.setFinalizer(ctx, secret, wanted) // reconciled again because the Secret has changed
	}
	// The label is removed before the finalizer: without both, the Secret is not reconciled again. An API
	// server that rejects the label or the owners does not keep the finalizer.
	sent, moveErr := k.ensureMoves(ctx, secret, wanted)
	switch {
	case sent:
		return ctrl.Result{RequeueAfter: reconcile.MinDelay}, nil // the Secret has another version now
	case wanted == hasFinalizer:
		return ctrl.Result{}, moveErr
	}
	result, err := k.setFinalizer(ctx, secret, wanted)
	if moveErr != nil || err != nil {
		return ctrl.Result{}, errors.Join(moveErr, err)
	}
	return result, nil
}

// setFinalizer adds the finalizer to a Secret or removes it.
func (k *secretProtector[C]) setFinalizer(ctx context.Context, secret *metav1.PartialObjectMetadata, wanted bool) (ctrl.Result, error) {
	before := secret.DeepCopy()
	if wanted {
		controllerutil.AddFinalizer(secret, k.finalizer)
	} else {
		controllerutil.RemoveFinalizer(secret, k.finalizer)
	}
	// The optimistic lock keeps the finalizers of other controllers, because the patch writes all
	// finalizers.
	err := k.client.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: reconcile.MinDelay}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("writing finalizers of Secret: %w", err)
	}
	return ctrl.Result{}, nil
}

// secretUse describes which clusters use a Secret.
type secretUse int

const (
	unused secretUse = iota
	// usedByOthers means that only clusters that another manager watches use it.
	usedByOthers
	// usedByOurs means that at least one cluster that this manager watches uses it.
	usedByOurs
)

// needsFinalizer decides whether a Secret has the finalizer. Another manager adds it for its own
// clusters, and no manager removes it while any cluster needs it. A Secret that is being deleted gets
// no finalizer: the API server would reject it.
func needsFinalizer(u secretUse, hasFinalizer, deleting bool) bool {
	switch u {
	case usedByOurs:
		return hasFinalizer || !deleting
	case usedByOthers:
		return hasFinalizer
	default:
		return false
	}
}

// useOf returns which clusters of a namespace reference a Secret.
func (k *secretProtector[C]) useOf(ctx context.Context, reader client.Reader, namespace string, secret client.ObjectKey) (secretUse, error) {
	found, err := reconcile.Select(ctx, reader, k.clusters, namespace, client.UnsafeDisableDeepCopy)
	if err != nil {
		return unused, err
	}
	by := unused
	for _, o := range found {
		c, ok := o.(C)
		if !ok || k.secretOf(c) != secret {
			continue
		}
		if reconcile.Watched(c, k.filter) {
			return usedByOurs, nil
		}
		by = usedByOthers
	}
	return by, nil
}

// secretOf returns the credentials Secret of a cluster. It returns the zero key if the cluster uses an
// identity, whose Secret is in the manager's namespace.
func (k *secretProtector[C]) secretOf(c C) client.ObjectKey {
	kind, name := k.identity(c)
	if cmp.Or(kind, infrav1.SecretIdentityKind) != infrav1.SecretIdentityKind {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: c.GetNamespace(), Name: name}
}

// ofCluster maps a cluster to its Secret. After an update, the previous state is mapped as well.
func (k *secretProtector[C]) ofCluster(_ context.Context, o client.Object) []ctrl.Request {
	if c, ok := o.(C); ok && k.secretOf(c).Name != "" {
		return []ctrl.Request{{NamespacedName: k.secretOf(c)}}
	}
	return nil
}

// ofIdentity maps an identity to its Secret. After an update, the previous state is mapped as well.
func (k *secretProtector[C]) ofIdentity(_ context.Context, o client.Object) []ctrl.Request {
	i, ok := o.(credentials.Identity)
	if !ok || k.mapper.namespace == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: k.mapper.namespace, Name: i.Common().CredentialsSecretRef.Name}}}
}

// ofSecret passes Secrets that have the finalizer or must get it, and the few Secrets in the namespace
// of identities. Most others have no such use, and each reconcile costs a request.
func (k *secretProtector[C]) ofSecret(ctx context.Context, o client.Object) []ctrl.Request {
	key := client.ObjectKeyFromObject(o)
	if !controllerutil.ContainsFinalizer(o, k.finalizer) && key.Namespace != k.mapper.namespace {
		u, err := k.useOf(ctx, k.client, metav1.NamespaceAll, key)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Mapping Secret to its users")
		}
		if u != usedByOurs {
			return nil
		}
	}
	return []ctrl.Request{{NamespacedName: key}}
}
