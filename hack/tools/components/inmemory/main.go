package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/remote"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/test/infrastructure/container"
	infrav1beta1 "sigs.k8s.io/cluster-api/test/infrastructure/docker/api/v1beta1"
	infrav1 "sigs.k8s.io/cluster-api/test/infrastructure/docker/api/v1beta2"
	"sigs.k8s.io/cluster-api/test/infrastructure/docker/controllers"
	infrawebhooks "sigs.k8s.io/cluster-api/test/infrastructure/docker/webhooks"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	inmemoryruntime "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// name is the name of this provider.
const name = "inmemory"

// concurrency is the number of objects of a kind that are reconciled in
// parallel, as in Cluster API's own manager.
const concurrency = 50

// options are the flags.
type options struct {
	health, certs string
	port          int
	manager       flags.ManagerOptions
}

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "inmemory:", err)
		os.Exit(1)
	}
}

// parse parses the flags of Cluster API's own manager, because its Deployment
// sets them.
func parse() (options, error) {
	var o options
	log := logs.NewOptions()
	logsv1.AddFlags(log, pflag.CommandLine)
	pflag.StringVar(&o.health, "health-addr", ":9440", "Address of the health endpoint.")
	pflag.IntVar(&o.port, "webhook-port", 9443, "Port of the webhooks.")
	pflag.StringVar(&o.certs, "webhook-cert-dir", "", "Directory of the webhooks' certificate.")
	pflag.Bool("leader-elect", false, "Taken and not heeded: there is only ever one.")
	flags.AddManagerOptions(pflag.CommandLine, &o.manager)
	feature.MutableGates.AddFlag(pflag.CommandLine)
	pflag.CommandLine.AddGoFlagSet(flag.CommandLine)
	pflag.Parse()
	if err := logsv1.ValidateAndApply(log, nil); err != nil {
		return o, fmt.Errorf("reading flags: %w", err)
	}
	ctrl.SetLogger(klog.Background())
	return o, nil
}

func run(ctx context.Context) error {
	o, err := parse()
	if err != nil {
		return err
	}
	mgr, err := newManager(o)
	if err != nil {
		return err
	}
	machines, clusters, err := backends(ctx, mgr)
	if err != nil {
		return err
	}
	many := controller.Options{MaxConcurrentReconciles: concurrency}
	if err := clusters.SetupWithManager(ctx, mgr, many); err != nil {
		return fmt.Errorf("setting up DevClusters: %w", err)
	}
	if err := machines.SetupWithManager(ctx, mgr, many); err != nil {
		return fmt.Errorf("setting up DevMachines: %w", err)
	}
	for _, hook := range []interface {
		SetupWebhookWithManager(mgr ctrl.Manager) error
	}{&infrawebhooks.DevMachine{}, &infrawebhooks.DevMachineTemplate{}, &infrawebhooks.DevCluster{}, &infrawebhooks.DevClusterTemplate{}} {
		if err := hook.SetupWebhookWithManager(mgr); err != nil {
			return fmt.Errorf("setting up webhooks: %w", err)
		}
	}
	if err := mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return fmt.Errorf("setting up health endpoint: %w", err)
	}
	return mgr.Start(ctx)
}

func newManager(o options) (ctrl.Manager, error) {
	scheme := schemeOf(clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, infrav1beta1.AddToScheme, infrav1.AddToScheme)
	tlsOptions, metrics, err := flags.GetManagerOptions(o.manager)
	if err != nil {
		return nil, fmt.Errorf("reading flags: %w", err)
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	config.QPS, config.Burst = 100, 200
	config.UserAgent = remote.DefaultClusterAPIUserAgent(name)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		HealthProbeBindAddress: o.health,
		Metrics:                *metrics,
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor:   []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}},
			Unstructured: true,
		}},
		WebhookServer: webhook.NewServer(webhook.Options{Port: o.port, CertDir: o.certs, TLSOpts: tlsOptions}),
	})
	if err != nil {
		return nil, fmt.Errorf("making manager: %w", err)
	}
	return mgr, nil
}

// backends are the reconcilers, over one store of simulated clusters.
func backends(ctx context.Context, mgr ctrl.Manager) (*controllers.DevMachineReconciler, *controllers.DevClusterReconciler, error) {
	store := &store{secrets: mgr.GetAPIReader(), Manager: inmemoryruntime.NewManager(schemeOf(cloudv1.AddToScheme, corev1.AddToScheme,
		appsv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme, apiextensionsv1.AddToScheme, policyv1.AddToScheme))}
	if err := store.Start(ctx); err != nil {
		return nil, nil, fmt.Errorf("starting store: %w", err)
	}
	mux, err := inmemoryserver.NewWorkloadClustersMux(store, os.Getenv("POD_IP"))
	if err != nil {
		return nil, nil, fmt.Errorf("making servers: %w", err)
	}
	store.mux = mux
	// Only machines of Docker use these two, but the reconcilers require them.
	docker, err := container.NewDockerClient()
	if err != nil {
		return nil, nil, fmt.Errorf("making client of Docker: %w", err)
	}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: mgr.GetAPIReader(),
		Client:       clustercache.ClientOptions{UserAgent: remote.DefaultClusterAPIUserAgent(name)},
	}, controller.Options{MaxConcurrentReconciles: concurrency})
	if err != nil {
		return nil, nil, fmt.Errorf("setting up cluster cache: %w", err)
	}
	return &controllers.DevMachineReconciler{
			Client: mgr.GetClient(), ContainerRuntime: docker, ClusterCache: clusters, InMemoryManager: store, APIServerMux: mux,
		}, &controllers.DevClusterReconciler{
			Client: mgr.GetClient(), ContainerRuntime: docker, InMemoryManager: store, APIServerMux: mux,
		}, nil
}

func schemeOf(add ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range add {
		utilruntime.Must(add(scheme))
	}
	return scheme
}
