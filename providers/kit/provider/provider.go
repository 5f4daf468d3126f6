package provider

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
)

// Info has the names of a provider.
type Info struct {
	// Name is the hypervisor in names: vsphere. The manager is nova-vsphere,
	// provider IDs begin with vsphere://, metrics have it as label provider.
	Name string
	// Title is the hypervisor in texts: vSphere.
	Title string
	// Kind is the prefix of the kinds: NovaVSphere.
	Kind string
	// AddToScheme adds the kinds to a scheme.
	AddToScheme func(s *runtime.Scheme) error
	// Server is an endpoint in texts: vCenter.
	Server string
	// Copies are the operations of a creation that load the storage: clones.
	Copies string
	// MaxCreations is the default of the flag --max-creations.
	MaxCreations int
	// Class defines the parts of the ClusterClass that are different on each
	// hypervisor: the templates variables, clusterOperations, clusterPatches,
	// machinePatches and interface of hack/providers/files/templates.
	Class string
}

// Manager is the name of the manager, of its folders in config and templates,
// and of the provider in clusterctl.
func (i *Info) Manager() string { return "nova-" + i.Name }

// Resource returns the plural of a kind in lower case, as in roles: Cluster,
// Machine, MachineTemplate, ClusterTemplate or Identity.
func (i *Info) Resource(kind string) string {
	plural := strings.ToLower(i.Kind+kind) + "s"
	return strings.Replace(plural, "identitys", "identities", 1)
}

// Options are the settings of a manager for all its hypervisors.
type Options struct {
	// MaxCreations is the maximum number of concurrent VM creations per
	// hypervisor. If not set, the number is not limited.
	MaxCreations int
	// Namespace is the namespace of the manager. It contains the Secrets of
	// cluster-scoped identities.
	Namespace string
	// Fence reports the clusters that another management cluster manages.
	Fence fence.Fence
}

// Connection keeps the sessions of a manager with all its hypervisors. The
// manager runs it.
type Connection[C, M, T client.Object] interface {
	manager.Runnable
	hypervisor.Inspector[C]
	hypervisor.Connector[M]
	hypervisor.Sizer[T]
}

// Provider is an infrastructure provider for clusters C, machines M and machine
// templates T.
type Provider[C, M, T client.Object] struct {
	Info

	// NewCluster, NewMachine, NewMachineList, NewTemplate and NewIdentity return
	// empty objects.
	NewCluster     func() C
	NewMachine     func() M
	NewMachineList func() client.ObjectList
	NewTemplate    func() T
	NewIdentity    func() credentials.Identity
	// Connect returns a Connection without sessions. The reader reads Secrets
	// from the API server and not from a cache.
	Connect func(reader client.Reader, o Options) Connection[C, M, T]
}
