// Command cert-manager-controller runs the controllers of cert-manager for certificates of the issuers
// CA and self-signed. Those for ACME, Vault and Venafi are not part of it: they compile clients of many
// services, some of which cannot be downloaded everywhere.
package main

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/healthz"
	logf "github.com/cert-manager/cert-manager/pkg/logs"

	"github.com/cert-manager/cert-manager/nova/start"

	// These packages register issuers and controllers.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/ingresses"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

const (
	name = "cert-manager-controller"
	// healthAddress is the address that the chart's probe uses.
	healthAddress = ":9403"
	workers       = 5
)

// The defaults of cert-manager.
const (
	leaseDuration  = 60 * time.Second
	renewDeadline  = 40 * time.Second
	retryPeriod    = 15 * time.Second
	healthTimeout  = 20 * time.Second
	minimumBackoff = time.Hour
	maximumBackoff = 32 * time.Hour
)

func main() {
	logging := logsapi.NewLoggingConfiguration()
	options := controller.ContextOptions{
		KubernetesAPIQPS: 20, KubernetesAPIBurst: 50,
		IngressShimOptions: controller.IngressShimOptions{
			DefaultIssuerKind: "Issuer", DefaultIssuerGroup: "cert-manager.io",
			DefaultAutoCertificateAnnotations: []string{"kubernetes.io/tls-acme"},
		},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: minimumBackoff, CertificateRequestMaximumBackoffDuration: maximumBackoff,
		},
	}
	var namespace string
	start.Main(name, logging, func(flags *pflag.FlagSet) {
		logf.AddFlags(logging, flags)
		flags.StringVar(&options.ClusterResourceNamespace, "cluster-resource-namespace", "kube-system", "namespace of the Secrets of ClusterIssuers")
		flags.StringVar(&namespace, "leader-election-namespace", "kube-system", "namespace of the lease")
		flags.StringVar(&options.HTTP01SolverImage, "acme-http01-solver-image", "", "not used: ACME is not part of this program")
		flags.IntVar(&options.MaxConcurrentChallenges, "max-concurrent-challenges", 0, "not used: ACME is not part of this program")
	}, func(ctx context.Context, _ []string) error { return run(ctx, options, namespace) })
}

// run runs the controllers while this process has the lease.
func run(ctx context.Context, options controller.ContextOptions, namespace string) error {
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		return err
	}
	base, err := factory.Build()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", healthAddress)
	if err != nil {
		return err
	}
	identity, err := os.Hostname()
	if err != nil {
		return err
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, name,
		base.Client.CoreV1(), base.Client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	health := healthz.NewServer(healthTimeout)
	group.Go(func() error { return health.Start(ctx, listener) })
	group.Go(func() error {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
			ReleaseOnCancel: true, WatchDog: health.LeaderHealthzAdaptor,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					if err := control(ctx, factory, base); err != nil {
						logf.FromContext(ctx).Error(err, "running controllers")
						os.Exit(1)
					}
				},
				OnStoppedLeading: func() {},
			},
		})
		return errors.New("the lease is lost")
	})
	return group.Wait()
}

// control runs the registered controllers until ctx ends.
func control(ctx context.Context, factory *controller.ContextFactory, base *controller.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, build := range controller.Known() {
		runner, err := build(factory)
		if err != nil {
			return err
		}
		group.Go(func() error { return runner.Run(workers, ctx) })
	}
	base.SharedInformerFactory.Start(ctx.Done())
	base.KubeSharedInformerFactory.Start(ctx.Done())
	base.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	return group.Wait()
}
