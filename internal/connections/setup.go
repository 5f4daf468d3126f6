package connections

import (
	"context"
	"flag"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

// DefaultConcurrency is the default of the flag --clustercache-concurrency, and
// the number that Cluster API's own managers use.
const DefaultConcurrency = 100

// Concurrency adds the flag for the number of workers to fs.
func Concurrency(fs *flag.FlagSet) *int {
	return fs.Int("clustercache-concurrency", DefaultConcurrency,
		"Number of workload clusters to connect to or probe simultaneously. Raise it if many clusters do not respond and new clusters wait for a connection.")
}

// Cache is a cluster cache that delays attempts to connect to clusters that do
// not answer.
type Cache struct {
	clustercache.ClusterCache

	backoff *backoff
}

// Setup adds a cluster cache to mgr. It retries a cluster that does not answer
// after interval, and later more slowly.
func Setup(ctx context.Context, mgr ctrl.Manager, options clustercache.Options, controllerOptions controller.Options,
	interval time.Duration,
) (*Cache, error) {
	b := &backoff{Reader: options.SecretClient, interval: interval, now: time.Now, initialized: initialized(mgr.GetClient())}
	options.SecretClient = b
	cache, err := clustercache.SetupWithManager(ctx, mgr, options, controllerOptions)
	if err != nil {
		return nil, fmt.Errorf("setting up cluster cache: %w", err)
	}
	if c, ok := cache.(interface{ SetConnectionCreationRetryInterval(interval time.Duration) }); ok {
		c.SetConnectionCreationRetryInterval(interval)
	}
	b.connected = func(ctx context.Context, cluster client.ObjectKey) time.Time {
		return cache.GetHealthCheckingState(ctx, cluster).LastProbeSuccessTime
	}
	return &Cache{ClusterCache: cache, backoff: b}, nil
}

// Answered allows the next attempt to connect to a cluster, because the cluster
// has just responded on another connection.
func (c *Cache) Answered(cluster client.ObjectKey) { c.backoff.answered(cluster) }

// initialized returns a function that reports whether the control plane of a
// cluster is initialized.
func initialized(clusters client.Reader) func(context.Context, client.ObjectKey) bool {
	return func(ctx context.Context, key client.ObjectKey) bool {
		cluster := &clusterv1.Cluster{}
		if err := clusters.Get(ctx, key, cluster); err != nil {
			return false
		}
		done := cluster.Status.Initialization.ControlPlaneInitialized
		return done != nil && *done
	}
}

// Shutdown disconnects all clusters for good. Only tests need it.
func (c *Cache) Shutdown() {
	if s, ok := c.ClusterCache.(interface{ Shutdown() }); ok {
		s.Shutdown()
	}
}
