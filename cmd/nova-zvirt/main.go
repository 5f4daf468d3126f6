// Command nova-zvirt runs the zVirt provider: it reconciles NovaZVirtClusters,
// NovaZVirtMachines and NovaZVirtMachineTemplates over zVirt and oVirt engines.
package main

import (
	"context"
	"flag"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/machine"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/template"
	"github.com/nova-platform/cluster-api-provider-nova/internal/manager"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt"
)

// maxCreations limits concurrent VM creations per engine. The manager adds Go's
// flags to its own.
var maxCreations = flag.Int("max-creations", 16,
	"Maximum number of VMs to create simultaneously in one engine; further creations wait in a queue. 0 means no limit. "+
		"Lower it if copies of disks overload the storage.")

func main() {
	manager.Main("nova-zvirt", scheme(), setup)
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme, infrav1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}

func setup(ctx context.Context, mgr ctrl.Manager, o *manager.Options) error {
	reader, err := manager.SecretClient(mgr)
	if err != nil {
		return fmt.Errorf("making client for credentials: %w", err)
	}
	connector := zvirt.NewConnector(reader, zvirt.Options{MaxCreations: *maxCreations, Namespace: o.ManagerNamespace, Fence: o.Fence})
	if err := mgr.Add(connector); err != nil {
		return fmt.Errorf("adding sessions: %w", err)
	}
	err = (&cluster.Reconciler[*infrav1.NovaZVirtCluster]{
		Inspector:      connector,
		New:            func() *infrav1.NovaZVirtCluster { return &infrav1.NovaZVirtCluster{} },
		NewMachineList: func() client.ObjectList { return &infrav1.NovaZVirtMachineList{} },
		Identity: func(c *infrav1.NovaZVirtCluster) (string, string) {
			ref := c.Identity()
			return ref.Kind, ref.Name
		},
		NewIdentity:      func() credentials.Identity { return &infrav1.NovaZVirtIdentity{} },
		ManagerNamespace: o.ManagerNamespace,
		Fence:            o.Fence,
		WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(ctx, mgr, o.Controller())
	if err != nil {
		return fmt.Errorf("setting up clusters: %w", err)
	}
	err = (&template.Reconciler[*infrav1.NovaZVirtMachineTemplate]{
		Sizer:            connector,
		New:              func() *infrav1.NovaZVirtMachineTemplate { return &infrav1.NovaZVirtMachineTemplate{} },
		InfraCluster:     &infrav1.NovaZVirtCluster{},
		WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(ctx, mgr, o.Controller())
	if err != nil {
		return fmt.Errorf("setting up templates: %w", err)
	}
	if err := manager.ExportConditions(mgr, o, &infrav1.NovaZVirtClusterList{}); err != nil {
		return err
	}
	return (&machine.Reconciler[*infrav1.NovaZVirtMachine]{
		Connector:        connector,
		New:              func() *infrav1.NovaZVirtMachine { return &infrav1.NovaZVirtMachine{} },
		InfraCluster:     &infrav1.NovaZVirtCluster{},
		Fence:            o.Fence,
		WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(ctx, mgr, o.Controller())
}
