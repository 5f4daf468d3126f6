// Command cert-manager-cainjector is cert-manager's CA injector, which writes the CA of the webhook to
// its configuration.
package main

import (
	"context"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	certmanager "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/scheme"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util"

	"github.com/cert-manager/cert-manager/nova/start"
)

func main() {
	logging := logsapi.NewLoggingConfiguration()
	var namespace string
	start.Main("cert-manager-cainjector", logging, func(flags *pflag.FlagSet) {
		logf.AddFlags(logging, flags)
		flags.StringVar(&namespace, "leader-election-namespace", "", "namespace of the lease")
	}, func(ctx context.Context, _ []string) error { return run(ctx, namespace) })
}

func run(ctx context.Context, namespace string) error {
	rest, err := config.GetConfig()
	if err != nil {
		return err
	}
	// The injector's field manager is the name in the user agent.
	rest = util.RestConfigWithUserAgent(rest, "cainjector")
	ctrl.SetLogger(logf.FromContext(ctx))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgo.AddToScheme, certmanager.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme:                  scheme,
		Client:                  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		LeaderElection:          true,
		LeaderElectionNamespace: namespace,
		LeaderElectionID:        "cert-manager-cainjector-leader-election",
	})
	if err != nil {
		return err
	}
	if err := cainjector.RegisterAllInjectors(ctx, mgr, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName: true, cainjector.ValidatingWebhookConfigurationName: true,
			cainjector.APIServiceName: true, cainjector.CustomResourceDefinitionName: true,
		},
	}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
