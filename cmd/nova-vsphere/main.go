// Command nova-vsphere runs the vSphere provider: it reconciles
// NovaVSphereClusters, NovaVSphereMachines and the capacity of their templates
// over vCenter.
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
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere"
)

// maxCreations limits concurrent VM creations per vCenter. The manager adds
// Go's flags to its own.
var maxCreations = flag.Int("max-creations", 100,
	"Maximum number of VMs to create simultaneously in one vCenter; further creations wait in a queue. 0 means no limit. "+
		"Lower it if clones overload the storage.")

func main() {
	manager.Main("nova-vsphere", scheme(), setup)
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
	connector := vsphere.NewConnector(reader, vsphere.Options{MaxCreations: *maxCreations, Namespace: o.ManagerNamespace})
	if err := mgr.Add(connector); err != nil {
		return fmt.Errorf("adding sessions: %w", err)
	}
	err = (&cluster.Reconciler[*infrav1.NovaVSphereCluster]{
		Inspector:      connector,
		New:            func() *infrav1.NovaVSphereCluster { return &infrav1.NovaVSphereCluster{} },
		NewMachineList: func() client.ObjectList { return &infrav1.NovaVSphereMachineList{} },
		Identity: func(c *infrav1.NovaVSphereCluster) (string, string) {
			ref := c.Identity()
			return ref.Kind, ref.Name
		},
		NewIdentity:      func() credentials.Identity { return &infrav1.NovaVSphereIdentity{} },
		ManagerNamespace: o.ManagerNamespace,
		Fence:            o.Fence,
		WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(ctx, mgr, o.Controller())
	if err != nil {
		return fmt.Errorf("setting up clusters: %w", err)
	}
	err = (&template.Reconciler[*infrav1.NovaVSphereMachineTemplate]{
		Sizer:            connector,
		New:              func() *infrav1.NovaVSphereMachineTemplate { return &infrav1.NovaVSphereMachineTemplate{} },
		InfraCluster:     &infrav1.NovaVSphereCluster{},
		WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(ctx, mgr, o.Controller())
	if err != nil {
		return fmt.Errorf("setting up templates: %w", err)
	}
	if err := manager.ExportConditions(mgr, o, &infrav1.NovaVSphereClusterList{}); err != nil {
		return err
	}
	return (&machine.Reconciler[*infrav1.NovaVSphereMachine]{
		Connector:        connector,
		New:              func() *infrav1.NovaVSphereMachine { return &infrav1.NovaVSphereMachine{} },
		InfraCluster:     &infrav1.NovaVSphereCluster{},
		Fence:            o.Fence,
		WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(ctx, mgr, o.Controller())
}
