package bootstrap

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/puppet"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// Indexes of NovaConfigs by the Secrets and ConfigMaps that their files and platform reference.
const (
	secretIndex    = "spec.secrets"
	configMapIndex = "spec.configMaps"
)

// SetupWithManager starts the controller with the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	r.setDefaults(mgr)
	if err := indexContent(ctx, mgr); err != nil {
		return err
	}
	content, err := r.contentCache(mgr)
	if err != nil {
		return err
	}
	fromCluster, err := util.ClusterToTypedObjectsMapper(r.Client, &bootstrapv1.NovaConfigList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to NovaConfigs: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("novaconfig").
		For(&bootstrapv1.NovaConfig{}, builder.WithPredicates(reconcile.IgnoreOwnStatus())).
		WithOptions(reconcile.Options(options)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(fromMachine), builder.WithPredicates(machineChanged())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(fromCluster), builder.WithPredicates(clusterChanged())).
		Watches(&controlplanev1.NovaControlPlane{}, handler.EnqueueRequestsFromMapFunc(reconcile.Siblings(r.Client, &bootstrapv1.NovaConfigList{})),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind(content, metadata("Secret"), handler.TypedEnqueueRequestsFromMapFunc(r.fromSecret))).
		WatchesRawSource(source.Kind(content, metadata("ConfigMap"), handler.TypedEnqueueRequestsFromMapFunc(r.fromConfigMap))).
		Complete(r)
}

func (r *Reconciler) setDefaults(mgr ctrl.Manager) {
	reconcile.SetDefaults(mgr, "novaconfig", &r.Client, &r.APIReader, &r.Recorder)
	r.facts, r.content, r.store = clusterFacts{r.Client}, contentReader{r.Client}, dataStore{r.Client}
	r.modes = modeReader{client: r.Client, live: r.APIReader}
	r.enroller = enroller{client: r.Client, namespace: r.ManagerNamespace, revoker: &puppet.Revoker{Client: r.Client, Recorder: r.Recorder, Namespace: r.ManagerNamespace}}
	r.issuer = issuer{client: r.Client, authority: r.Authority, signer: r.Signer, rotator: r.Rotator, workloadClusters: r.WorkloadClusters, ttl: r.CredentialTTL}
}

// contentCache holds the metadata of all Secrets and ConfigMaps: a file may reference any of them, and
// a fix of one must trigger the NovaConfig at once. The manager's own cache contains only the Secrets
// of clusters.
func (r *Reconciler) contentCache(mgr ctrl.Manager) (cache.Cache, error) {
	options := cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		DefaultTransform: cache.TransformStripManagedFields(),
	}
	if r.Namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{r.Namespace: {}}
	}
	content, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, fmt.Errorf("making cache of content: %w", err)
	}
	if err := mgr.Add(content); err != nil {
		return nil, fmt.Errorf("adding cache of content: %w", err)
	}
	return content, nil
}

func metadata(kind string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return object
}

// indexContent indexes NovaConfigs by the Secrets and ConfigMaps that their files and platform
// reference.
func indexContent(ctx context.Context, mgr ctrl.Manager) error {
	for index, by := range map[string]struct {
		file     func(bootstrapv1.FileSource) string
		platform func(*bootstrapv1.PlatformSpec) []string
	}{
		secretIndex:    {func(from bootstrapv1.FileSource) string { return from.Secret.Name }, platformSecrets},
		configMapIndex: {func(from bootstrapv1.FileSource) string { return from.ConfigMap.Name }, platformConfigMaps},
	} {
		err := mgr.GetFieldIndexer().IndexField(ctx, &bootstrapv1.NovaConfig{}, index, func(o client.Object) []string {
			config, isConfig := o.(*bootstrapv1.NovaConfig)
			if !isConfig {
				return nil
			}
			names := by.platform(&config.Spec.Platform)
			for i := range config.Spec.Files {
				if n := by.file(config.Spec.Files[i].ContentFrom); n != "" {
					names = append(names, n)
				}
			}
			for i := range config.Spec.Users {
				if n := by.file(bootstrapv1.FileSource{Secret: config.Spec.Users[i].PasswordHashSecretRef}); n != "" {
					names = append(names, n)
				}
			}
			return names
		})
		if err != nil {
			return fmt.Errorf("indexing NovaConfigs by %s: %w", index, err)
		}
	}
	return nil
}

func fromMachine(_ context.Context, o client.Object) []ctrl.Request {
	machine, isMachine := o.(*clusterv1.Machine)
	if !isMachine {
		return nil
	}
	ref := machine.Spec.Bootstrap.ConfigRef
	if !bootstrapv1.IsNovaConfig(ref) {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: machine.Namespace, Name: ref.Name}}}
}

// fromSecret returns the NovaConfigs that reference the Secret, own it, or wait for the certificates
// in it.
func (r *Reconciler) fromSecret(ctx context.Context, o *metav1.PartialObjectMetadata) []ctrl.Request {
	requests := append(r.referencing(ctx, secretIndex, o), r.fromPlatform(ctx, o, platformSecrets)...)
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "NovaConfig" {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: o.Namespace, Name: owner.Name}})
	}
	if cluster, _, err := secret.ParseSecretName(o.Name); err == nil {
		requests = append(requests, r.list(ctx, o.Namespace, client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})...)
	}
	return requests
}

func (r *Reconciler) fromConfigMap(ctx context.Context, o *metav1.PartialObjectMetadata) []ctrl.Request {
	return append(r.referencing(ctx, configMapIndex, o), r.fromPlatform(ctx, o, platformConfigMaps)...)
}

// fromPlatform returns the NovaConfigs of the clusters whose NovaControlPlane references the object in
// its platform settings.
func (r *Reconciler) fromPlatform(ctx context.Context, o *metav1.PartialObjectMetadata, names func(*bootstrapv1.PlatformSpec) []string) []ctrl.Request {
	controlPlanes := &controlplanev1.NovaControlPlaneList{}
	if err := r.Client.List(ctx, controlPlanes, client.InNamespace(o.Namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing NovaControlPlanes")
		return nil
	}
	var requests []ctrl.Request
	for i := range controlPlanes.Items {
		c := &controlPlanes.Items[i]
		if cluster := c.Labels[clusterv1.ClusterNameLabel]; cluster != "" && slices.Contains(names(&c.Spec.Platform), o.Name) {
			requests = append(requests, r.list(ctx, o.Namespace, client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})...)
		}
	}
	return requests
}

func (r *Reconciler) referencing(ctx context.Context, index string, o client.Object) []ctrl.Request {
	return r.list(ctx, o.GetNamespace(), client.MatchingFields{index: o.GetName()})
}

func (r *Reconciler) list(ctx context.Context, namespace string, option client.ListOption) []ctrl.Request {
	found, err := reconcile.Select(ctx, r.Client, &bootstrapv1.NovaConfigList{}, namespace, option)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Mapping to NovaConfigs")
	}
	return reconcile.Requests(found)
}

// machineChanged passes the changes of a Machine that change its need for data.
func machineChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, isMachine := e.ObjectOld.(*clusterv1.Machine)
		is, isMachineToo := e.ObjectNew.(*clusterv1.Machine)
		return isMachine && isMachineToo &&
			(was.Status.NodeRef.IsDefined() != is.Status.NodeRef.IsDefined() ||
				ptr.Deref(was.Status.Initialization.InfrastructureProvisioned, false) != ptr.Deref(is.Status.Initialization.InfrastructureProvisioned, false) ||
				was.Generation != is.Generation || !maps.Equal(was.Labels, is.Labels))
	}}
}

// clusterChanged passes the changes of a Cluster that NovaConfigs wait for.
func clusterChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, isCluster := e.ObjectOld.(*clusterv1.Cluster)
		is, isClusterToo := e.ObjectNew.(*clusterv1.Cluster)
		return isCluster && isClusterToo &&
			(fence.Changed(e) || was.Generation != is.Generation ||
				ptr.Deref(was.Status.Initialization.InfrastructureProvisioned, false) != ptr.Deref(is.Status.Initialization.InfrastructureProvisioned, false))
	}}
}
