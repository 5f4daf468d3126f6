package manager

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
)

// Setup adds a binary's controllers to a manager.
type Setup func(ctx context.Context, mgr ctrl.Manager, o *Options) error

// Main runs a binary: it parses the flags, runs the manager called name until
// it is stopped, and exits.
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
	leaveRoom()
	ctrl.SetLogger(klog.Background())
	klog.Background().Info("Starting manager", "manager", name, "version", version)
	if err := Run(ctrl.SetupSignalHandler(), name, o, scheme, setup); err != nil {
		klog.Background().Error(err, "Manager stopped", "manager", name)
		klog.Flush()
		os.Exit(1)
	}
}

// leaveRoom lowers the memory limit of the environment by a tenth: it is the
// limit of the container, which includes more than Go's own memory.
func leaveRoom() {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}

// Run runs the manager called name until ctx is done. The lease has the same
// name.
func Run(ctx context.Context, name string, o *Options, scheme *runtime.Scheme, setup Setup) error {
	policy, err := o.endpoints()
	if err != nil {
		return err
	}
	endpoints.Set(policy)
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
	if o.Fence, err = fence.Read(ctx, mgr.GetAPIReader()); err != nil {
		return fmt.Errorf("identifying management cluster: %w", err)
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

// SecretClient returns a client that reads kubeconfigs from the manager's
// cache. Of other Secrets the cache contains only the metadata: they are read
// from the API server once per change, and a list returns them without data. A
// kubeconfig that is too large is returned without data, too.
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
	return &secretClient{Client: c, live: mgr.GetAPIReader(), read: lru.New(maxRead)}, nil
}

const (
	// maxRead is the number of Secrets that a SecretClient stores in addition
	// to kubeconfigs, and maxRemembered the maximum size of each.
	maxRead, maxRemembered = 4096, 4 << 10
)

type secretClient struct {
	client.Client
	live client.Reader
	// read contains small Secrets that were read from the API server, by key.
	// An entry is valid while the cache has the same version.
	read *lru.Cache
}

// Get reads a kubeconfig from the cache, and another Secret from the API server
// if it has changed since it was read.
func (c *secretClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, o, options...); err != nil {
		return err
	}
	secret, ok := o.(*corev1.Secret)
	if !ok || isKubeconfig(key.Name) {
		return nil
	}
	if known, ok := c.read.Get(key); ok {
		known := known.(*corev1.Secret) //nolint:forcetypeassert // nothing else is added
		if known.UID == secret.UID && known.ResourceVersion == secret.ResourceVersion {
			known.DeepCopyInto(secret)
			return nil
		}
	}
	if err := c.live.Get(ctx, key, secret, options...); err != nil {
		c.read.Remove(key)
		return err
	}
	if secret.Size() <= maxRemembered {
		c.read.Add(key, secret.DeepCopy())
	} else {
		c.read.Remove(key)
	}
	return nil
}
