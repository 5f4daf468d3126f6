package manager

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// Setup adds a binary's controllers to a manager.
type Setup func(ctx context.Context, mgr ctrl.Manager, o *Options) error

// Main is the whole of a binary: it reads the flags, runs the manager called
// name until it is told to stop, and exits.
func Main(name string, scheme *runtime.Scheme, setup Setup) {
	o := &Options{}
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	o.AddFlags(fs)
	// controller-runtime registers --kubeconfig here.
	fs.AddGoFlagSet(flag.CommandLine)
	if err := fs.Parse(os.Args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			os.Exit(0)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := logsv1.ValidateAndApply(o.Logs, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctrl.SetLogger(klog.Background())
	klog.Background().Info("Starting manager", "manager", name, "version", version)
	if err := Run(ctrl.SetupSignalHandler(), name, o, scheme, setup); err != nil {
		klog.Background().Error(err, "Manager stopped", "manager", name)
		klog.Flush()
		os.Exit(1)
	}
}

// Run runs the manager called name until ctx is done. The name is also the
// lease's.
func Run(ctx context.Context, name string, o *Options, scheme *runtime.Scheme, setup Setup) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding management cluster: %w", err)
	}
	config.UserAgent = name
	config.QPS, config.Burst = o.QPS, o.Burst
	opts, err := o.manager(name, scheme)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, opts)
	if err != nil {
		return fmt.Errorf("making manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding readiness check: %w", err)
	}
	if err := setup(ctx, mgr, o); err != nil {
		return fmt.Errorf("setting up controllers: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running manager: %w", err)
	}
	return nil
}

// SecretClient returns a client that reads the Secrets of clusters from the
// manager's cache. A Secret without the cluster's name label, of which the
// cache keeps only the metadata, is read past it; a list shows it empty.
func SecretClient(mgr ctrl.Manager) (client.Client, error) {
	c, err := client.New(mgr.GetConfig(), client.Options{
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		HTTPClient: mgr.GetHTTPClient(),
		Cache:      &client.CacheOptions{Reader: mgr.GetCache()},
	})
	if err != nil {
		return nil, fmt.Errorf("making client for Secrets: %w", err)
	}
	return secretClient{Client: c, live: mgr.GetAPIReader()}, nil
}

type secretClient struct {
	client.Client
	live client.Reader
}

// Get reads from the cache, unless the cache has dropped what is asked for.
func (c secretClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, o, options...); err != nil {
		return err
	}
	if secret, ok := o.(*corev1.Secret); ok && stripped(secret) {
		return c.live.Get(ctx, key, o, options...)
	}
	return nil
}
