package manager

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/flags"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

// A failed object is retried after firstRetry, and each later delay is twice as
// long. lastRetry is low, because a user who fixes the cause waits for the
// result.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// podNamespace is the environment variable with the manager's namespace.
const podNamespace = "POD_NAMESPACE"

// Options are the flags that all managers have.
type Options struct {
	// Namespace is the only watched namespace. If not set, all are watched.
	Namespace string
	// WatchFilter is the required value of the label
	// cluster.x-k8s.io/watch-filter. If not set, any object is reconciled.
	WatchFilter string
	// Concurrency is the number of objects of a kind to reconcile
	// simultaneously.
	Concurrency int
	// SyncPeriod is the interval of periodic reconciles of every object.
	SyncPeriod time.Duration
	// HealthAddr is the address of /healthz and /readyz.
	HealthAddr string

	// ManagerNamespace is the namespace of the manager, with the Secrets of
	// identities. It is not set if unknown.
	ManagerNamespace string

	// Fence keeps the manager from acting for clusters of another management
	// cluster. Run sets it.
	Fence fence.Fence

	// LeaderElect enables leader election.
	LeaderElect bool
	// LeaderElectNamespace is the namespace of the lease. Defaults to the
	// manager's own.
	LeaderElectNamespace string
	// LeaseDuration, RenewDeadline and RetryPeriod configure leader election.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	// QPS and Burst limit the requests to the management cluster.
	QPS   float32
	Burst int

	// DenyEndpoints and AllowEndpoints are address ranges that are denied for
	// servers named by tenants, and the exceptions.
	DenyEndpoints, AllowEndpoints []string

	// Diagnostics are Cluster API's flags for metrics and TLS.
	Diagnostics flags.ManagerOptions
	// DiagnosticsAudience is the audience of tokens for metrics. Defaults to
	// that of the API server.
	DiagnosticsAudience string
	// Logs are Kubernetes' flags for logging.
	Logs *logs.Options
}

// AddFlags adds the flags to fs and sets the defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Namespace, "namespace", "", "Namespace to watch. If empty, all namespaces are watched.")
	fs.StringVar(&o.WatchFilter, "watch-filter", "",
		fmt.Sprintf("Value of the label %s that objects must have. If empty, all objects are reconciled.", clusterv1.WatchLabel))
	fs.IntVar(&o.Concurrency, "concurrency", 10, "Number of objects of a kind reconciled at once.")
	fs.DurationVar(&o.SyncPeriod, "sync-period", 10*time.Minute, "How often every object is reconciled without a change. At most 30m.")
	fs.StringVar(&o.HealthAddr, "health-addr", ":9440", "Address of /healthz and /readyz.")

	fs.StringVar(&o.ManagerNamespace, "manager-namespace", os.Getenv(podNamespace),
		"Namespace the manager runs in, where the Secrets of identities lie. If empty, identities cannot be used.")

	fs.BoolVar(&o.LeaderElect, "leader-elect", false, "Let only one of several managers work.")
	fs.StringVar(&o.LeaderElectNamespace, "leader-elect-namespace", "",
		"Namespace of the lease. If empty, the namespace the manager runs in.")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second, "Interval at which non-leader candidates will wait to force acquire leadership.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long the leader tries to renew before it gives up.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 2*time.Second, "How long to wait between two tries.")

	fs.Float32Var(&o.QPS, "kube-api-qps", 100, "Requests a second to the management cluster.")
	fs.IntVar(&o.Burst, "kube-api-burst", 200, "Requests to the management cluster in a burst.")

	fs.StringSliceVar(&o.DenyEndpoints, "deny-endpoints", nil,
		"Ranges of addresses (CIDR) that servers named in objects of tenants may not have: API servers, object storage, hypervisors. "+
			"Loopback, link-local, multicast and unspecified addresses and the API service of the management cluster are always denied.")
	fs.StringSliceVar(&o.AllowEndpoints, "allow-endpoints", nil,
		"Ranges of addresses (CIDR) that are exceptions to the denied ones.")

	flags.AddManagerOptions(fs, &o.Diagnostics)
	fs.StringVar(&o.DiagnosticsAudience, "diagnostics-audience", "",
		"Audience that a token for the diagnostics endpoint must be issued for. If empty, the API server's own.")
	if o.Logs == nil {
		o.Logs = logs.NewOptions()
	}
	logsv1.AddFlags(o.Logs, fs)
}

// endpoints returns the policy of the flags.
func (o *Options) endpoints() (endpoints.Policy, error) {
	policy, err := endpoints.New(o.DenyEndpoints, o.AllowEndpoints, os.Getenv("KUBERNETES_SERVICE_HOST"))
	if err != nil {
		return endpoints.Policy{}, fmt.Errorf("reading flags of endpoints: %w", err)
	}
	return policy, nil
}

// Controller returns the options of every controller.
func (o *Options) Controller() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: o.Concurrency,
		RateLimiter:             loop.NewRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}

// grace is how long a stopping manager waits for its workers. It is less than
// the Deployment's terminationGracePeriodSeconds, so that the manager releases
// the lease and the next manager does not wait until it expires: Cluster API's
// cluster cache may wait indefinitely for a controller that no longer reads its
// events.
const grace = 8 * time.Second

// maxSyncPeriod is half the time after which an unused session with a
// hypervisor is closed.
const maxSyncPeriod = 30 * time.Minute

// manager returns the options of the manager called name.
func (o *Options) manager(name string, scheme *runtime.Scheme) (ctrl.Options, error) {
	if o.SyncPeriod <= 0 || o.SyncPeriod > maxSyncPeriod {
		return ctrl.Options{}, fmt.Errorf("reading flags: --sync-period is %s and must be above zero and at most %s: "+
			"sessions with hypervisors are closed when they are not used for longer", o.SyncPeriod, maxSyncPeriod)
	}
	_, metrics, err := flags.GetManagerOptions(o.Diagnostics)
	if err != nil {
		return ctrl.Options{}, fmt.Errorf("reading diagnostics flags: %w", err)
	}
	if o.DiagnosticsAudience != "" && metrics.FilterProvider != nil {
		metrics.FilterProvider = forAudience(o.DiagnosticsAudience, metrics.FilterProvider)
	}
	opts := ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       *metrics,
		HealthProbeBindAddress:        o.HealthAddr,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              name + "-leader",
		LeaderElectionNamespace:       o.LeaderElectNamespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(grace),
		LeaseDuration:                 &o.LeaseDuration,
		RenewDeadline:                 &o.RenewDeadline,
		RetryPeriod:                   &o.RetryPeriod,
		Cache: cache.Options{
			SyncPeriod:       &o.SyncPeriod,
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}: {Transform: keepKubeconfigs, Namespaces: o.secretNamespaces()},
			},
		},
		// A read of one of these is always a request; see SecretClient.
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		}},
	}
	if o.Namespace != metav1.NamespaceAll {
		opts.Cache.DefaultNamespaces = map[string]cache.Config{o.Namespace: {}}
	}
	return opts, nil
}

// secretNamespaces are the namespaces with watched Secrets: the watched
// namespace and the manager's own, so that a change of an identity's Secret is
// detected. Nil means all namespaces.
func (o *Options) secretNamespaces() map[string]cache.Config {
	if o.Namespace == metav1.NamespaceAll || o.ManagerNamespace == "" {
		return nil
	}
	return map[string]cache.Config{o.Namespace: {}, o.ManagerNamespace: {}}
}

// keepKubeconfigs keeps the kubeconfigs of workload clusters in memory, which
// are read every few seconds. Of all other Secrets only the metadata is kept,
// which is enough to detect a change: no manager stores the CA keys, the
// bootstrap data or the passwords of all clusters.
func keepKubeconfigs(object any) (any, error) {
	if o, ok := object.(*corev1.Secret); ok {
		kept := &corev1.Secret{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta, Type: o.Type}
		delete(kept.Annotations, corev1.LastAppliedConfigAnnotation)
		if value := o.Data[secret.KubeconfigDataName]; isKubeconfig(o.Name) && len(value) <= maxKubeconfig {
			kept.Data = map[string][]byte{secret.KubeconfigDataName: value}
		}
		object = kept
	}
	return cache.TransformStripManagedFields()(object)
}

// maxKubeconfig is the maximum size of a kubeconfig.
const maxKubeconfig = 64 << 10

// isKubeconfig reports whether a Secret has the name of a kubeconfig. Cluster
// API's contract defines the name; a Secret that a user created may lack the
// labels.
func isKubeconfig(name string) bool { return strings.HasSuffix(name, "-"+string(secret.Kubeconfig)) }
