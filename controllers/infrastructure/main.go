package infrastructure

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

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/machine"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/template"
	"github.com/nova-platform/cluster-api-provider-nova/internal/manager"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
)

// Cluster is the interface that the controllers require of an infrastructure
// cluster.
type Cluster interface {
	cluster.Object

	// Identity returns the reference to the credentials.
	Identity() infrav1.IdentityReference
}

// Main runs the manager of a provider until it is stopped, and exits.
func Main[C Cluster, M machine.Object, T template.Object](p *provider.Provider[C, M, T]) {
	// The manager adds Go's flags to its own.
	creations := flag.Int("max-creations", p.MaxCreations, fmt.Sprintf(
		"Maximum number of VMs to create simultaneously in one %s; further creations wait in a queue. 0 means no limit. "+
			"Lower it if %s overload the storage.", p.Server, p.Copies))
	manager.Main(p.Manager(), Scheme(&p.Info), func(ctx context.Context, mgr ctrl.Manager, o *manager.Options) error {
		return Setup(ctx, mgr, o, p, *creations)
	})
}

// Scheme returns the types of the controllers of a provider.
func Scheme(p *provider.Info) *runtime.Scheme {
	s := runtime.NewScheme()
	types := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme, p.AddToScheme)
	utilruntime.Must(types.AddToScheme(s))
	return s
}

// Setup adds the controllers of a provider to a manager.
func Setup[C Cluster, M machine.Object, T template.Object](ctx context.Context, mgr ctrl.Manager, o *manager.Options,
	p *provider.Provider[C, M, T], maxCreations int) error {
	reader, err := manager.SecretClient(mgr)
	if err != nil {
		return fmt.Errorf("making client for credentials: %w", err)
	}
	connection := p.Connect(reader, provider.Options{MaxCreations: maxCreations, Namespace: o.ManagerNamespace, Fence: o.Fence})
	if err := mgr.Add(connection); err != nil {
		return fmt.Errorf("adding sessions: %w", err)
	}
	err = (&cluster.Reconciler[C]{
		Inspector:      connection,
		New:            p.NewCluster,
		NewMachineList: p.NewMachineList,
		NewIdentity:    p.NewIdentity,
		Identity: func(c C) (string, string) {
			ref := c.Identity()
			return ref.Kind, ref.Name
		},
		ManagerNamespace: o.ManagerNamespace,
		Fence:            o.Fence,
		WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(ctx, mgr, o.Controller())
	if err != nil {
		return fmt.Errorf("setting up clusters: %w", err)
	}
	err = (&template.Reconciler[T]{
		Sizer:            connection,
		New:              p.NewTemplate,
		InfraCluster:     p.NewCluster(),
		WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(ctx, mgr, o.Controller())
	if err != nil {
		return fmt.Errorf("setting up templates: %w", err)
	}
	clusters, err := reconcile.ListFor(mgr.GetScheme(), p.NewCluster())
	if err != nil {
		return err
	}
	if err := manager.ExportConditions(mgr, o, clusters); err != nil {
		return err
	}
	return (&machine.Reconciler[M]{
		Connector:        connection,
		New:              p.NewMachine,
		InfraCluster:     p.NewCluster(),
		Fence:            o.Fence,
		WatchFilterValue: o.WatchFilter,
	}).SetupWithManager(ctx, mgr, o.Controller())
}
