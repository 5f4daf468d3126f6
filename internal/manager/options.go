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

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
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
	fs.StringVar(&o.Namespace, "namespace", "",
		"Namespace of the objects to reconcile. If not set, the manager reconciles the objects of all namespaces.")
	fs.StringVar(&o.WatchFilter, "watch-filter", "",
		fmt.Sprintf("Value of the label %s of the objects to reconcile. Set it if several managers of this provider share a management cluster. "+
			"If not set, the manager reconciles all objects, with any label.", clusterv1.WatchLabel))
	fs.IntVar(&o.Concurrency, "concurrency", 10,
		"Number of objects of one kind to reconcile simultaneously. Raise it if objects wait in the queue (metric workqueue_depth) while the processor is idle.")
	fs.DurationVar(&o.SyncPeriod, "sync-period", 10*time.Minute,
		"Interval after which every object is reconciled without an event. At most 30m. It is a safety net: a shorter interval causes more requests and detects no change earlier.")
	fs.StringVar(&o.HealthAddr, "health-addr", ":9440", "Address and port of /healthz and /readyz, without TLS. Change it only if the port is in use.")

	fs.StringVar(&o.ManagerNamespace, "manager-namespace", os.Getenv(podNamespace),
		"Namespace of the manager, with the Secrets of identities. Defaults to the environment variable POD_NAMESPACE. If neither is set, clusters cannot use identities.")

	fs.BoolVar(&o.LeaderElect, "leader-elect", false,
		"Elect one of several replicas as leader. Only the leader reconciles objects. Set it if the Deployment can have more than one pod, also during an update.")
	fs.StringVar(&o.LeaderElectNamespace, "leader-elect-namespace", "",
		"Namespace of the lease for the leader election. If not set, the namespace of the pod. Set it if the manager runs outside of a cluster.")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"Time without renewal after which another replica becomes the leader. Raise the three times if a slow API server makes leaders lose the lease.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		"Time in which the leader must renew the lease. After it the manager stops. Must be less than the lease duration.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 2*time.Second, "Interval between two attempts to get or renew the lease.")

	fs.Float32Var(&o.QPS, "kube-api-qps", 100,
		"Maximum average number of requests per second to the API server of the management cluster. Raise it if the log reports client-side throttling.")
	fs.IntVar(&o.Burst, "kube-api-burst", 200,
		"Maximum number of requests at once to the API server of the management cluster. Twice the value of --kube-api-qps is usual.")

	fs.StringSliceVar(&o.DenyEndpoints, "deny-endpoints", nil,
		"Comma-separated address ranges (CIDR) that the manager does not connect to if an object of a tenant names them: API servers, etcd, object storage, hypervisors. "+
			"Loopback, link-local, multicast and unspecified addresses and the API service of the management cluster are also denied.")
	fs.StringSliceVar(&o.AllowEndpoints, "allow-endpoints", nil,
		"Comma-separated address ranges (CIDR) that the manager connects to although another flag or the built-in list denies them.")

	flags.AddManagerOptions(fs, &o.Diagnostics)
	fs.StringVar(&o.DiagnosticsAudience, "diagnostics-audience", "",
		"Audience of the tokens that the diagnostics endpoint accepts. If not set, the default audience of the API server. Set it if Prometheus sends a token that no other server must accept.")
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
		RateLimiter:             reconcile.RateLimiter(),
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
