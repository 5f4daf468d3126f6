// Command nova-control-plane runs the control plane provider: it reconciles
// NovaControlPlanes over machines of any infrastructure provider.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/remote"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/etcdbackup"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/connections"
	"github.com/nova-platform/cluster-api-provider-nova/internal/manager"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/access"
)

const name = "nova-control-plane"

var (
	clusterCacheWorkers = connections.Concurrency(flag.CommandLine)
	probePeriod         = flag.Duration("probe-period", 5*time.Second,
		"Maximum interval between two health probes of the API server of a workload cluster. During changes the interval is 2s. "+
			"Raise it to send fewer requests to many clusters; the manager then detects failures later.")
	snapshotWorkers = flag.Int("snapshot-concurrency", 10,
		"Number of etcd snapshots to take simultaneously, at most one per namespace. Restores have their own workers. "+
			"Lower it if snapshots overload the network or the bucket.")
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
	user := controlplane.NewUser(authority)
	workloadClusters, err := access.Setup(ctx, mgr,
		access.CacheOptions(remote.DefaultClusterAPIUserAgent(name), secrets, o.WatchFilter), clusterCache, authority, user, *probePeriod)
	if err != nil {
		return err
	}
	snapshots := o.Controller()
	snapshots.MaxConcurrentReconciles = *snapshotWorkers
	reach := etcdbackup.NewWorkloadClusters(secrets, authority, user)
	if err := (&etcdbackup.SnapshotReconciler{
		Client: mgr.GetClient(), WorkloadClusters: reach, Recorder: mgr.GetEventRecorder(name), Fence: o.Fence, WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(mgr, snapshots); err != nil {
		return err
	}
	if err := (&etcdbackup.RestoreReconciler{
		Client: mgr.GetClient(), WorkloadClusters: reach, Recorder: mgr.GetEventRecorder(name), Fence: o.Fence, WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(mgr, o.Controller()); err != nil {
		return err
	}
	for _, list := range []client.ObjectList{&clusterv1.ClusterList{}, &controlplanev1.NovaControlPlaneList{}} {
		if err := manager.ExportConditions(mgr, o, list); err != nil {
			return err
		}
	}
	return controlplane.New(scope.Config{
		Client:           mgr.GetClient(),
		APIReader:        mgr.GetAPIReader(),
		Authority:        authority,
		Rotator:          authority,
		WorkloadClusters: workloadClusters,
		Recorder:         mgr.GetEventRecorder(name),
		Fence:            o.Fence,
		WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(ctx, mgr, o.Controller())
}
