// Command nova-addon runs the add-on provider: it installs the modules of
// NovaModuleSets in workload clusters through Flux, and publishes a
// ClusterProfile for each Cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/remote"
	ctrl "sigs.k8s.io/controller-runtime"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/clusterprofile"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules"
	"github.com/nova-platform/cluster-api-provider-nova/internal/connections"
	"github.com/nova-platform/cluster-api-provider-nova/internal/manager"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

const name = "nova-addon"

var clusterCacheWorkers = connections.Concurrency(flag.CommandLine)

// Flags of this manager, in addition to the common flags.
var (
	managementFrom = flag.String("management-modules-from", os.Getenv("POD_NAMESPACE"),
		"Comma-separated list of namespaces whose NovaModuleSets can have modules that run in the management cluster. "+
			"Defaults to the environment variable POD_NAMESPACE, the namespace of the manager.")
	managementImages = flag.String("management-image-repository", "",
		"Registry and path of the images of modules in the management cluster. Set it in networks without Internet. If not set, each image is pulled from its own registry.")
)

func main() {
	scheme := runtime.NewScheme()
	types := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme,
		addonsv1.AddToScheme, helmv2.AddToScheme, kustomizev1.AddToScheme, sourcev1.AddToScheme)
	utilruntime.Must(types.AddToScheme(scheme))
	manager.Main(name, scheme, setup)
}

func setup(ctx context.Context, mgr ctrl.Manager, o *manager.Options) error {
	secrets, err := manager.SecretClient(mgr)
	if err != nil {
		return fmt.Errorf("making client for kubeconfigs: %w", err)
	}
	clusterCache := o.Controller()
	clusterCache.MaxConcurrentReconciles = *clusterCacheWorkers
	workloadClusters, err := modules.SetupWorkloadClusters(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Client:       clustercache.ClientOptions{UserAgent: remote.DefaultClusterAPIUserAgent(name)},
	}, clusterCache, modules.NewUser(pki.NewManaged(mgr.GetClient())))
	if err != nil {
		return err
	}
	if err := manager.ExportConditions(mgr, o, &addonsv1.NovaModuleSetList{}); err != nil {
		return err
	}
	recorder := mgr.GetEventRecorder(name)
	profiles := &clusterprofile.Reconciler{Client: mgr.GetClient(), Secrets: secrets, Recorder: recorder, WatchFilterValue: o.WatchFilter, Release: manager.Version()}
	if err := profiles.SetupWithManager(mgr, o.Controller()); err != nil {
		return fmt.Errorf("setting up controller of ClusterProfiles: %w", err)
	}
	from := strings.FieldsFunc(*managementFrom, func(r rune) bool { return r == ',' || r == ' ' })
	return modules.SetupWithManager(ctx, mgr,
		&modules.SetReconciler{Client: mgr.GetClient(), Recorder: recorder, WatchFilterValue: o.WatchFilter, ManagementFrom: from},
		&modules.ClusterReconciler{
			Client: mgr.GetClient(), Objects: mgr.GetCache(), WorkloadClusters: workloadClusters, Recorder: recorder, WatchFilterValue: o.WatchFilter,
			ManagementFrom: from, ManagementImages: *managementImages,
		}, o.Controller())
}
