package modules

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/flux"
	"github.com/nova-platform/cluster-api-provider-nova/internal/connections"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// WorkloadClusters connects to workload clusters.
type WorkloadClusters interface {
	// Source delivers requests for Clusters whose workload cluster became reachable or unreachable.
	Source(controller string, of handler.MapFunc) source.Source
	// Reachable returns nil while the API server of the workload cluster responds.
	Reachable(ctx context.Context, cluster client.ObjectKey) error
	// Substitute writes Nova's substitutions to the workload cluster, if they differ.
	Substitute(ctx context.Context, cluster client.ObjectKey, data map[string]string) error
	// Forget drops the state of a workload cluster.
	Forget(cluster client.ObjectKey)
}

const (
	// probeFailure is how long a workload cluster may be unresponsive before it counts as unreachable:
	// two probes.
	probeFailure = 20 * time.Second
	// connectRetry is the delay until an unreachable workload cluster is tried again.
	connectRetry = 2 * time.Second
)

// SetupWorkloadClusters adds Cluster API's cluster cache to mgr and returns Tenants that use it and
// connect as user. It caches no object of a workload cluster.
func SetupWorkloadClusters(ctx context.Context, mgr ctrl.Manager, options clustercache.Options, controllerOptions controller.Options, user *workload.User) (WorkloadClusters, error) {
	secrets := workload.NewSecrets(options.SecretClient, user, mgr.GetEventRecorder("novamoduleset"))
	options.SecretClient = secrets
	cache, err := connections.Setup(ctx, mgr, options, controllerOptions, connectRetry)
	if err != nil {
		return nil, err
	}
	return &workloadClusters{clusters: cache, refused: secrets.Refused, failure: secrets.Failure}, nil
}

type workloadClusters struct {
	clusters clustercache.ClusterCache
	// refused returns why a kubeconfig is not used.
	refused func(cluster client.ObjectKey) error
	// failure returns why the last request failed.
	failure func(cluster client.ObjectKey) error

	written reconcile.Memory[client.ObjectKey, written]
}

// written holds the data that was seen on a workload cluster, and the time.
type written struct {
	data map[string]string
	at   time.Time
}

// Source implements Tenants.
func (t *workloadClusters) Source(controller string, of handler.MapFunc) source.Source {
	return t.clusters.GetClusterSource(controller, of, clustercache.WatchForProbeFailure(probeFailure))
}

var errNoResponse = errors.New("the API server does not respond")

// Reachable implements Tenants.
func (t *workloadClusters) Reachable(ctx context.Context, cluster client.ObjectKey) error {
	if err := t.refused(cluster); err != nil {
		return err
	}
	if _, err := t.clusters.GetUncachedClient(ctx, cluster); err != nil {
		return t.unreachable(cluster)
	}
	state := t.clusters.GetHealthCheckingState(ctx, cluster)
	if state.ConsecutiveFailures > 0 && time.Since(state.LastProbeSuccessTime) >= probeFailure {
		return t.unreachable(cluster)
	}
	return nil
}

// unreachable returns why a workload cluster is unreachable.
func (t *workloadClusters) unreachable(cluster client.ObjectKey) error {
	if err := t.failure(cluster); err != nil {
		return err
	}
	return errNoResponse
}

// Substitute implements Tenants. It reads written data again every ten minutes, as often as Flux
// compares.
func (t *workloadClusters) Substitute(ctx context.Context, cluster client.ObjectKey, data map[string]string) error {
	last, _ := t.written.Get(cluster)
	if equality.Semantic.DeepEqual(last.data, data) && time.Since(last.at) < addonsv1.DefaultInterval {
		return nil
	}
	c, err := t.clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return t.unreachable(cluster)
	}
	if err := substitute(ctx, c, data); err != nil {
		return fmt.Errorf("writing ConfigMap %s to the workload cluster: %w", modules.SubstituteConfig, err)
	}
	t.written.Set(cluster, written{data: data, at: time.Now()})
	return nil
}

func substitute(ctx context.Context, c client.Client, data map[string]string) error {
	existing := &corev1.ConfigMap{}
	err := c.Get(ctx, types.NamespacedName{Namespace: modules.SubstituteNamespace, Name: modules.SubstituteConfig}, existing)
	if err == nil && equality.Semantic.DeepEqual(existing.Data, data) {
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: modules.SubstituteNamespace}}
	if err := c.Create(ctx, namespace, client.FieldOwner(flux.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return c.Apply(ctx, applycorev1.ConfigMap(modules.SubstituteConfig, modules.SubstituteNamespace).WithData(data),
		client.FieldOwner(flux.FieldManager), client.ForceOwnership)
}

// Forget implements Tenants.
func (t *workloadClusters) Forget(cluster client.ObjectKey) {
	t.written.Forget(cluster)
}
