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

// A failing object is tried again after firstRetry, then twice as long each
// time. lastRetry is low, because a person who mends the cause watches.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// podNamespace is the variable in which a Deployment tells a manager where it
// runs.
const podNamespace = "POD_NAMESPACE"

// Options are the flags that all managers have.
type Options struct {
	// Namespace is the only one watched; all, if empty.
	Namespace string
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter
	// that objects must have; any, if empty.
	WatchFilter string
	// Concurrency is how many objects of a kind are reconciled at once.
	Concurrency int
	// SyncPeriod is how often every object is reconciled unasked.
	SyncPeriod time.Duration
	// HealthAddr is where /healthz and /readyz are served.
	HealthAddr string

	// ManagerNamespace is the one the manager itself runs in, where the
	// Secrets of identities lie. Empty when it is not known.
	ManagerNamespace string

	// Fence keeps the manager from acting for clusters of another management
	// cluster. Run sets it.
	Fence fence.Fence

	// LeaderElect lets only one of several managers work.
	LeaderElect bool
	// LeaderElectNamespace is where the lease lives; the manager's own, if empty.
	LeaderElectNamespace string
	// LeaseDuration, RenewDeadline and RetryPeriod are the lease's times.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	// QPS and Burst bound the requests to the management cluster.
	QPS   float32
	Burst int

	// DenyEndpoints and AllowEndpoints are ranges of addresses that servers
	// named by tenants may not have, and the exceptions.
	DenyEndpoints, AllowEndpoints []string

	// Diagnostics are Cluster API's flags for metrics and TLS.
	Diagnostics flags.ManagerOptions
	// DiagnosticsAudience is the audience that a token for metrics must have;
	// that of the API server, if empty.
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
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long others wait for a leader that is silent.")
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

// Controller returns the options every controller is set up with.
func (o *Options) Controller() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: o.Concurrency,
		RateLimiter:             loop.NewRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}

// grace is how long a manager that is told to stop waits for its workers. It
// is less than the Deployment's terminationGracePeriodSeconds, so that the
// lease is given back and the next manager need not wait for it to expire:
// Cluster API's cluster cache may wait for ever for a controller that no longer
// takes its events.
const grace = 8 * time.Second

// maxSyncPeriod is half the time after which a session with a hypervisor is closed
// that no reconcile uses.
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

// secretNamespaces are where Secrets are watched: beside the namespace that the
// manager keeps to also its own, so that a change of an identity's Secret is
// noticed. None means all.
func (o *Options) secretNamespaces() map[string]cache.Config {
	if o.Namespace == metav1.NamespaceAll || o.ManagerNamespace == "" {
		return nil
	}
	return map[string]cache.Config{o.Namespace: {}, o.ManagerNamespace: {}}
}

// keepKubeconfigs keeps the kubeconfigs of workload clusters in memory, which
// are read every few seconds. Of all other Secrets only the metadata is kept,
// which is enough to notice a change: no manager holds the CA keys, the
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

// maxKubeconfig is the largest kubeconfig that is kept and used.
const maxKubeconfig = 64 << 10

// isKubeconfig reports whether a Secret has the name of a kubeconfig. The name
// is the contract of Cluster API; a Secret that a user created may lack the
// labels.
func isKubeconfig(name string) bool { return strings.HasSuffix(name, "-"+string(secret.Kubeconfig)) }
