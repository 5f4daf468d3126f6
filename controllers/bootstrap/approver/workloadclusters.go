package approver

import (
	"context"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/nova-platform/cluster-api-provider-nova/internal/connections"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
)

// ConnectRetry is the delay until an unreachable workload cluster is tried again: joining machines
// wait for it.
const ConnectRetry = 3 * time.Second

// SetupWorkloadClusters adds a cluster cache to mgr. It connects as user and caches only
// certificate requests of a workload cluster, and a condition of its Nodes.
func SetupWorkloadClusters(ctx context.Context, mgr ctrl.Manager, userAgent string, secrets client.Reader, user *workload.User, watchFilter string, options controller.Options) (clustercache.ClusterCache, error) {
	return connections.Setup(ctx, mgr, clustercache.Options{
		SecretClient:     workload.NewSecrets(secrets, user, mgr.GetEventRecorder("novaconfig")),
		WatchFilterValue: watchFilter,
		Client:           clustercache.ClientOptions{UserAgent: userAgent},
		// The transform is not set by object: a cache that names a kind cannot be created if the API
		// server does not serve that kind. A field selector would select one signer, but two are
		// decided.
		Cache: clustercache.CacheOptions{DefaultTransform: keepUsed},
	}, options, ConnectRetry)
}

// SetupWithManager starts the controller with the manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	reconcile.SetDefaults(mgr, "novaconfig", &r.Client, nil, &r.Recorder)
	own := func(_ context.Context, o client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	}
	const name = "novaconfig-requests"
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&clusterv1.Cluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WithOptions(reconcile.Options(options)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(toCluster), builder.WithPredicates(machineNamed())).
		WatchesRawSource(r.WorkloadClusters.GetClusterSource(name, own)).
		Build(r)
	if err != nil {
		return err
	}
	r.watcher = c
	return nil
}

// watch adds a watch for certificate requests. The cluster cache adds it only once per connection.
func (r *Reconciler) watch(ctx context.Context, cluster client.ObjectKey) error {
	err := r.WorkloadClusters.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name: "novaconfig-requests", Watcher: r.watcher, Kind: &certificatesv1.CertificateSigningRequest{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: cluster}}
		}),
		Predicates: []predicate.Predicate{open()},
	}))
	if err != nil {
		return fmt.Errorf("watching certificate requests: %w", err)
	}
	return nil
}

// open passes requests that have not been decided or signed yet.
func open() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		csr, ok := o.(*certificatesv1.CertificateSigningRequest)
		return ok && (isOpen(csr) || isUnsigned(csr)) && csr.DeletionTimestamp.IsZero() && slices.Contains(signers, csr.Spec.SignerName)
	})
}

func toCluster(_ context.Context, o client.Object) []ctrl.Request {
	m, ok := o.(*clusterv1.Machine)
	if !ok || m.Spec.ClusterName == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}}}
}

// machineNamed passes changes of a Machine that affect which certificates it may have.
func machineNamed() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, isMachine := e.ObjectOld.(*clusterv1.Machine)
			is, isMachineToo := e.ObjectNew.(*clusterv1.Machine)
			return isMachine && isMachineToo &&
				(was.Status.NodeRef != is.Status.NodeRef || !slices.Equal(was.Status.Addresses, is.Status.Addresses) ||
					was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero())
		},
	}
}
