// Command nova-bootstrap runs the bootstrap provider: it writes the bootstrap
// data of machines, for any infrastructure provider.
package main

import (
	"context"
	"flag"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/remote"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/approver"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/inplace"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/puppet"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/nodegroup"
	"github.com/nova-platform/cluster-api-provider-nova/internal/connections"
	"github.com/nova-platform/cluster-api-provider-nova/internal/manager"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

const name = "nova-bootstrap"

var (
	clusterCacheWorkers = connections.Concurrency(flag.CommandLine)
	extensionAddress    = flag.String("runtime-extension-address", "",
		"Address and port of the runtime extension that lets Cluster API change workers in place, with TLS. If not set, it is not served. The Deployment sets it.")
)

func main() {
	scheme := runtime.NewScheme()
	types := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme)
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
	authority := &pki.Authorities{Kube: mgr.GetClient(), Namespace: o.ManagerNamespace, Manager: name, TokenFile: pki.TokenFile}
	workloadClusters, err := approver.SetupWorkloadClusters(ctx, mgr, remote.DefaultClusterAPIUserAgent(name), secrets, approver.NewUser(authority), o.WatchFilter, clusterCache)
	if err != nil {
		return err
	}
	configs := &bootstrap.Reconciler{
		WorkloadClusters: workloadClusters,
		Authority:        authority,
		Signer:           authority,
		Rotator:          authority,
		Namespace:        o.Namespace,
		ManagerNamespace: o.ManagerNamespace,
		Fence:            o.Fence,
		WatchFilterValue: o.WatchFilter,
	}
	if err := configs.SetupWithManager(ctx, mgr, o.Controller()); err != nil {
		return err
	}
	if *extensionAddress != "" && o.ManagerNamespace != "" {
		extension := &inplace.Extension{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), WorkloadClusters: workloadClusters, Settings: configs.Settings, Programs: configs.Programs,
			Address: *extensionAddress, Namespace: o.ManagerNamespace,
		}
		if err := extension.SetupWithManager(mgr); err != nil {
			return err
		}
		preview := &inplace.Preview{Programs: configs.Programs, WatchFilterValue: o.WatchFilter}
		if err := preview.SetupWithManager(mgr, o.Controller()); err != nil {
			return err
		}
	}
	requests := &approver.Reconciler{WorkloadClusters: workloadClusters, Signer: authority, Fence: o.Fence, WatchFilterValue: o.WatchFilter}
	if err := requests.SetupWithManager(ctx, mgr, o.Controller()); err != nil {
		return err
	}
	runs := &puppet.Reconciler{WorkloadClusters: workloadClusters, Fence: o.Fence, WatchFilterValue: o.WatchFilter}
	if err := runs.SetupWithManager(mgr, o.Controller()); err != nil {
		return err
	}
	templates := &bootstrap.TemplateReconciler{WatchFilterValue: o.WatchFilter}
	if err := templates.SetupWithManager(ctx, mgr, o.Controller()); err != nil {
		return err
	}
	groups := &nodegroup.Reconciler{WatchFilterValue: o.WatchFilter}
	return groups.SetupWithManager(ctx, mgr, o.Controller())
}
