package cluster

import (
	"cmp"
	"context"
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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

// keeper keeps the Secrets that clusters have their credentials in until no
// cluster names them. A namespace that is deleted takes them in its first
// pass, and nobody can make another one in it: no VM could be deleted any
// more. What is on its way out is read as before.
//
// It follows from what is there, not from what a cluster did last, so that two
// clusters that go at once, a reference that changes, clusterctl move and a
// manager that was not there leave no Secret held. A pause holds nothing back:
// this asks nothing of a cluster, and one that is paused has VMs as well.
type keeper[C Object] struct {
	// client reads the metadata of Secrets past the cache, and all else
	// through it.
	client    client.Client
	past      client.Reader
	clusters  client.ObjectList
	identity  func(C) (kind, name string)
	finalizer string
	filter    string
}

// setUp starts keeping.
func (k *keeper[C]) setUp(mgr ctrl.Manager, name string, infra C, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(name+"-credentials").
		WithOptions(loop.Options(options)).
		Watches(infra, handler.EnqueueRequestsFromMapFunc(k.ofCluster),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(k.ofSecret),
			builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Complete(k)
}

// Reconcile puts the finalizer on one Secret, or takes it off.
func (k *keeper[C]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := k.client.Get(ctx, req.NamespacedName, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading metadata of Secret: %w", err)
	}
	held := controllerutil.ContainsFinalizer(secret, k.finalizer)
	// All are listed: a cache that is kept to some namespaces takes the name of
	// another one for an error.
	by, err := k.use(ctx, k.client, metav1.NamespaceAll, req.NamespacedName)
	if err == nil && held && by == unused {
		// The cache may not know of a cluster that is new: ask again past it.
		by, err = k.use(ctx, k.past, req.Namespace, req.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	before := secret.DeepCopy()
	switch keeps := keep(by, held, !secret.DeletionTimestamp.IsZero()); {
	case keeps == held:
		return ctrl.Result{}, nil
	case keeps:
		controllerutil.AddFinalizer(secret, k.finalizer)
	default:
		controllerutil.RemoveFinalizer(secret, k.finalizer)
	}
	// The lock keeps the finalizers of others, as all of them are written.
	err = k.client.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: loop.MinDelay}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("writing finalizers of Secret: %w", err)
	}
	return ctrl.Result{}, nil
}

// use is who takes credentials from a Secret.
type use int

const (
	unused use = iota
	// others are clusters that another manager watches.
	others
	// ours are, or one of them is, watched here.
	ours
)

// keep says whether a Secret is to have the finalizer. Another manager puts it
// on for its own clusters, and none takes it off while anybody's need it. What
// is going gets none: it would be refused.
func keep(u use, held, going bool) bool {
	switch u {
	case ours:
		return held || !going
	case others:
		return held
	default:
		return false
	}
}

// use finds out which clusters name a Secret, among those of a namespace.
func (k *keeper[C]) use(ctx context.Context, reader client.Reader, namespace string, secret client.ObjectKey) (use, error) {
	found, err := loop.Select(ctx, reader, k.clusters, namespace, client.UnsafeDisableDeepCopy)
	if err != nil {
		return unused, err
	}
	by := unused
	for _, o := range found {
		c, ok := o.(C)
		if !ok || k.secretOf(c) != secret {
			continue
		}
		if loop.Watched(c, k.filter) {
			return ours, nil
		}
		by = others
	}
	return by, nil
}

// secretOf names the Secret that a cluster has its credentials in; none, if it
// borrows them from an identity, whose Secret lies with the manager.
func (k *keeper[C]) secretOf(c C) client.ObjectKey {
	kind, name := k.identity(c)
	if cmp.Or(kind, infrav1.SecretIdentityKind) != infrav1.SecretIdentityKind {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: c.GetNamespace(), Name: name}
}

// ofCluster maps a cluster to its Secret. Of one that changed also what it was
// before is asked.
func (k *keeper[C]) ofCluster(_ context.Context, o client.Object) []reconcile.Request {
	if c, ok := o.(C); ok && k.secretOf(c).Name != "" {
		return []reconcile.Request{{NamespacedName: k.secretOf(c)}}
	}
	return nil
}

// ofSecret lets those through that are held or to be held. Most are neither,
// and a look at one is a request.
func (k *keeper[C]) ofSecret(ctx context.Context, o client.Object) []reconcile.Request {
	key := client.ObjectKeyFromObject(o)
	if !controllerutil.ContainsFinalizer(o, k.finalizer) {
		u, err := k.use(ctx, k.client, metav1.NamespaceAll, key)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Mapping Secret to its users")
		}
		if u != ours {
			return nil
		}
	}
	return []reconcile.Request{{NamespacedName: key}}
}
