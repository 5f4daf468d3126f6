package hypervisor

import (
	"context"
	"net/netip"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Key is the namespace and name of a machine in the management cluster.
type Key struct {
	Namespace string
	Name      string
}

// KeyOf returns the key of an object.
func KeyOf(o interface {
	GetNamespace() string
	GetName() string
}) Key {
	return Key{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Connector opens drivers over shared sessions. Each provider exports one.
type Connector[M any] interface {
	// Connect returns a driver that uses the credentials of the cluster of m.
	// Machines share sessions. Connect also works while m is being deleted and
	// its Cluster no longer exists.
	Connect(ctx context.Context, m M) (Driver[M], error)

	// Changes delivers the keys of machines whose VM changed, so that controllers
	// need not poll. Each call returns the same channel, which is never closed.
	Changes() <-chan Key
}

// Driver manages the VMs of one kind of machine at one endpoint.
//
// No call waits for the hypervisor: a later Observe reports work in progress as
// Busy. Each call can be repeated: the name and the owner mark of a VM depend
// on m alone, so a repeated call does not create a second VM. A driver never
// changes a VM that lacks the owner mark.
type Driver[M any] interface {
	// Observe reports the VM of m, or Absent. It changes nothing, it can be
	// repeated with the same result, and in the steady state it sends no request.
	// It returns an error only if the state of the VM is not known.
	Observe(ctx context.Context, m M) (VM, error)

	// Create starts to create the VM. It is called while the VM is Absent.
	Create(ctx context.Context, m M, l CreateOptions) error

	// Start starts to power the VM on. It is called while the VM is Stopped.
	Start(ctx context.Context, m M) error

	// Syncers returns the parts of a VM and of its related objects that can differ
	// from a machine. Those before others in the list are changed first.
	Syncers() []Syncer[M]

	// Shutdown requests a shutdown from the guest and returns at once. It is
	// called while the VM is Running and a graceful shutdown is required. If the
	// guest cannot receive the request, Shutdown returns an Error with the reason
	// GuestUnreachable.
	Shutdown(ctx context.Context, m M) error

	// Delete starts to delete the VM and the disks that it owns. Disks that
	// another user attached are detached and kept. Delete is called until Observe
	// reports Absent.
	Delete(ctx context.Context, m M) error
}

// Syncer changes one part of a VM, or the objects of one kind that are related
// to it, to match the machine.
type Syncer[M any] struct {
	// Name is the name of the part, for instance Tags.
	Name string
	// AfterJoin means that the part is changed only once the node has joined.
	AfterJoin bool
	// Apply starts to change the part. It is called while the part is pending. A
	// later Observe reports the result.
	Apply func(ctx context.Context, m M) error
}

// Names of Syncers that all drivers have: UserData removes the bootstrap data, and
// Resize increases sizes of a VM that runs.
const (
	UserData = "UserData"
	Resize   = "Resize"
)

// Pending reports whether Observe found a difference in the part.
func (s Syncer[M]) Pending(vm *VM) bool { return slices.Contains(vm.ToSync, s.Name) }

// Inspector reads the infrastructure that the machines of one cluster share.
type Inspector[C any] interface {
	// Inspect reports the endpoint of c. While the session is open, it sends no
	// request.
	Inspect(ctx context.Context, c C) (Endpoint, error)

	// EndpointChanges delivers the keys of clusters whose endpoint became
	// reachable or unreachable. Each call returns the same channel, which is
	// never closed.
	EndpointChanges() <-chan Key
}

// Endpoint is the result of Inspect.
type Endpoint struct {
	// ID identifies this hypervisor. It does not change during the lifetime of
	// the hypervisor, even if its address changes. It is empty if the hypervisor
	// has no ID.
	ID string
	// Version is the version of the hypervisor, for display.
	Version string
	// Server is the address of the hypervisor, and CABundle or Thumbprint verifies
	// its certificate. Components outside of the managers use them.
	Server, CABundle, Thumbprint string
	// FailureDomains are the failure domains in which machines can be placed. It
	// is empty if the cluster has none.
	FailureDomains []clusterv1.FailureDomain
	// VMs are the VMs that have the owner mark of a machine of the cluster, even
	// if the management cluster does not have the machine.
	VMs []OwnedVM
}

// OwnedVM is a VM that was created for a machine of a cluster.
type OwnedVM struct {
	// Machine is the name of that machine.
	Machine string
	// ID is the ID of the VM in the hypervisor.
	ID string
}

// EndpointIdentifier is a Driver that knows the ID of its hypervisor.
// Controllers use it to make sure that they read from the hypervisor of the
// cluster and not from another one at the same address.
type EndpointIdentifier interface {
	// EndpointID returns the ID that Inspect reports for the Endpoint to which the
	// Driver was connected. It sends no request. Observe returns an error once
	// another hypervisor responds at the address.
	EndpointID() string
}

// State is the state of a VM as a controller sees it.
type State string

// States of a VM.
const (
	// Absent means that the hypervisor has no such VM.
	Absent State = "Absent"
	// Busy means that the hypervisor is working on the VM and that its state must
	// be read again later.
	Busy State = "Busy"
	// Stopped means that the VM is complete and powered off.
	Stopped State = "Stopped"
	// Running means that the VM is powered on.
	Running State = "Running"
)

// VM is the result of Observe.
type VM struct {
	State State
	// ProviderID is the value that the kubelet reports in Node.spec.providerID.
	// It is empty while the VM is Absent.
	ProviderID string
	// ID is the ID of the VM in the hypervisor, for display. It is empty while the
	// VM is Absent.
	ID string
	// Zone is the failure domain of the VM. It is empty if there are none.
	Zone string
	// Host is the host of the hypervisor on which the VM runs, for display. It is
	// empty while the host is not known.
	Host string
	// Addresses are the addresses that the guest reports, in its order. The list
	// is empty until the guest has booted. The controller publishes them
	// unchanged: an address is an InternalIP, or an ExternalIP if the
	// configuration states that its network is reachable from outside.
	Addresses []clusterv1.MachineAddress
	// NICs are the network interfaces of the VM, in their order, for display. The
	// list is empty until the guest has reported them.
	NICs []NIC
	// OutOfSync describes, for display, the next difference between the VM with
	// its related objects and the spec of the machine. It is empty if there is no
	// difference.
	OutOfSync string
	// ToSync are the names of the Syncers whose part differs from the machine.
	ToSync []string
	// UserData is set while the settings of the VM contain the bootstrap data,
	// which includes secrets.
	UserData bool
	// Resizable are the sizes of a Running VM. The list is empty while they are not
	// known.
	Resizable []Resizable
	// Report is the progress of the first boot that the guest reports. It is the
	// zero value if the guest reports nothing.
	Report Report
	// LastFailure is the error with which the last action failed after its call
	// had returned: a task that failed. It is set as soon as the VM is in a state
	// in which the action can be repeated, and stays until the next action begins
	// or the VM no longer needs the action. Until then, each Observe returns the
	// same error value: for the controller, another value is a new failure.
	LastFailure error
	// FailedSyncer is the name of the Syncer whose change is the last action, if
	// that failed. It is empty if another action failed.
	FailedSyncer string
	// Message is, for display, the current operation of a Busy VM, the fault of a
	// Running VM, or the step that is required before an Absent VM can be
	// created.
	Message string
}

// Resizable is a size of a VM, such as its memory.
type Resizable struct {
	// Field is the path in the spec of the machine, such as hardware.cpus.
	Field string
	// Size is the size of the VM in the unit of the field.
	Size int64
	// MaxSize is the largest size that the hypervisor can give the VM while it
	// runs. It is zero if the hypervisor cannot change the size then.
	MaxSize int64
	// Step is the number of which an increase must be a multiple. Zero is one.
	Step int64
	// Message is, for display, why MaxSize is zero.
	Message string
}

// NIC is a network interface of a VM.
type NIC struct {
	// Network is the name of the network in the hypervisor. It is empty if the
	// name is not known.
	Network string
	// MAC is the hardware address.
	MAC string
	// Addresses are the addresses that the guest reports, without link-local
	// addresses.
	Addresses []netip.Addr
}

// CreateOptions are the inputs of a new VM that come from Cluster API and not
// from the infrastructure machine.
type CreateOptions struct {
	// UserData is the bootstrap data. Format is its format: cloud-config or
	// ignition.
	UserData []byte
	Format   string
	// Zone is the required failure domain of the VM. If not set, any failure
	// domain can be used.
	Zone string
	// Interfaces are the addresses that IP address pools allocated, by the index
	// of the interface in the spec of the machine. The list is shorter if the
	// last interfaces have no addresses.
	Interfaces [][]Address
}

// Pooled returns the addresses that pools allocated for an interface.
func (o *CreateOptions) Pooled(index int) []Address {
	if index >= len(o.Interfaces) {
		return nil
	}
	return o.Interfaces[index]
}

// Address is an address from an IP address pool.
type Address struct {
	// Prefix is the address with the prefix length of its network.
	Prefix netip.Prefix
	// Gateway is the default gateway of the network. It is the zero value if the
	// network has none.
	Gateway netip.Addr
}

// Sizer computes the capacity of machines that do not exist yet.
type Sizer[T any] interface {
	// Size reports the capacity of a node created from t, before the kubelet
	// reserves resources. If the cluster of the template is not known yet, it
	// returns an error with Waiting set.
	Size(ctx context.Context, t T) (Size, error)
}

// Size is the capacity of a machine.
type Size struct {
	// CPUs is the number of virtual processors.
	CPUs int64
	// MemoryBytes is the size of the memory.
	MemoryBytes int64
	// DiskBytes is the size of the boot disk. It is zero if the size is not
	// known.
	DiskBytes int64
	// Architecture is amd64, arm64, s390x or ppc64le. It is empty if the
	// architecture is not known.
	Architecture string
	// Devices are extended resources, such as GPUs, by their name.
	Devices map[string]int64
}
