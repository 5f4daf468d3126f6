package hypervisor

import (
	"context"
	"net/netip"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Key names a machine in the management cluster.
type Key struct {
	Namespace string
	Name      string
}

// Connector opens drivers over shared sessions. Each provider exports one.
type Connector[M any] interface {
	// Connect returns a driver logged in with the credentials that m's
	// cluster names. Sessions are shared between machines. It works while m
	// is being deleted and its Cluster is gone.
	Connect(ctx context.Context, m M) (Driver[M], error)

	// Changes delivers the keys of machines whose VM changed, so that nobody
	// has to poll. The channel is the same on every call and is never closed.
	Changes() <-chan Key
}

// Driver looks after the VMs of one kind of machine behind one endpoint.
//
// No call waits for the hypervisor: work in progress is reported by a later
// Observe as Busy. Every call may be repeated: a VM's name and owner mark
// follow from m alone, so a repeated call never makes a second VM, and a VM
// without our mark is never touched.
type Driver[M any] interface {
	// Observe reports the VM behind m, or Absent. It changes nothing, and in
	// the steady state it costs no request. The failure of the last action,
	// if it is known only now (a task that failed), is returned as an Error
	// together with the VM, as soon as the VM is back in a state in which the
	// action can be repeated; one Observe returns it, the next does not. Any
	// other error comes with the zero VM: its state is not known.
	Observe(ctx context.Context, m M) (VM, error)

	// Create starts to create the VM. Called while it is Absent.
	Create(ctx context.Context, m M, l Launch) error

	// Start starts to power it on. Called while it is Stopped.
	Start(ctx context.Context, m M) error

	// Settle starts to bring what surrounds the VM in line with m: what
	// Observe calls Unsettled and, once the node has joined, the user data,
	// which leaves the VM's settings. It takes one step a call; another
	// Observe says what is still to do.
	Settle(ctx context.Context, m M, joined bool) error

	// Shutdown asks the guest to power itself off and comes back at once.
	// Called while the VM is Running and is to go softly. A guest that cannot
	// be asked is an Error with the reason GuestUnreachable.
	Shutdown(ctx context.Context, m M) error

	// Delete starts to take the VM and the disks it owns away. Disks that
	// somebody else attached are detached and kept. Called until Observe
	// reports Absent.
	Delete(ctx context.Context, m M) error
}

// Inspector looks at the infrastructure that the machines of one cluster share.
type Inspector[C any] interface {
	// Inspect reports on the endpoint behind c. While the session stands it
	// costs no request.
	Inspect(ctx context.Context, c C) (Site, error)

	// SiteChanges delivers the keys of clusters whose endpoint came or went.
	// The channel is the same on every call and is never closed.
	SiteChanges() <-chan Key
}

// Site is what Inspect saw.
type Site struct {
	// ID tells this hypervisor from all others and stays the same for as long
	// as it lives, whatever its address. Empty when it has none.
	ID string
	// Version is the hypervisor's version, for people.
	Version string
	// Server is where the hypervisor is reached, and CABundle verifies its
	// certificate, for components outside of the managers.
	Server, CABundle string
	// FailureDomains are the domains machines can be placed in; none if the
	// cluster has none.
	FailureDomains []clusterv1.FailureDomain
	// VMs are those that bear the mark of a machine of the cluster, whether the
	// management cluster has the machine or not.
	VMs []MarkedVM
}

// MarkedVM is a VM that was created for a machine of a cluster.
type MarkedVM struct {
	// Machine is the name of that machine.
	Machine string
	// ID is what the hypervisor calls the VM.
	ID string
}

// Identified is a Driver that knows which hypervisor it talks to. One that is
// not the cluster's own is not asked anything.
type Identified interface {
	// SiteID is what Inspect reports as the Site's ID. It costs no request.
	SiteID() string
}

// State is how a VM looks from outside.
type State string

// States of a VM.
const (
	// Absent means the hypervisor has no such VM.
	Absent State = "Absent"
	// Busy means the hypervisor is working on the VM; look again later.
	Busy State = "Busy"
	// Stopped means the VM is complete and powered off.
	Stopped State = "Stopped"
	// Running means the VM is powered on.
	Running State = "Running"
)

// VM is what Observe saw.
type VM struct {
	State State
	// ProviderID is what the kubelet reports in Node.spec.providerID. Empty
	// while the VM is Absent.
	ProviderID string
	// Zone is the failure domain the VM landed in. Empty when there are none.
	Zone string
	// Host is the hypervisor's host the VM runs on, for people. Empty while
	// it is not known.
	Host string
	// Addresses are those the guest reports, in its order; none until it has
	// booted. They are published as they are: an address is an InternalIP, and
	// an ExternalIP only where the driver was told that its network is reached
	// from outside.
	Addresses []clusterv1.MachineAddress
	// NICs are the VM's network interfaces, in their order, for people; none until
	// the guest has reported them.
	NICs []NIC
	// Unsettled says, for people, what around the VM is not yet as its
	// machine asks. Empty when all is.
	Unsettled string
	// UserData is set while the VM's settings hold the first-boot document,
	// which has secrets in it.
	UserData bool
	// Report is what the guest says of its first boot; empty when it says
	// nothing.
	Report Report
	// Message is the current operation of a Busy VM, the fault of a Running one, or
	// the step before an Absent one can be created, for people.
	Message string
}

// NIC is a network interface of a VM.
type NIC struct {
	// Network is the hypervisor's name of the network. Empty if it is not known.
	Network string
	// MAC is the hardware address.
	MAC string
	// Addresses are those that the guest reports, without those that are
	// link-local.
	Addresses []netip.Addr
}

// Launch is what Cluster API has settled about a VM before it exists.
type Launch struct {
	// UserData is the first-boot document, and Format its kind: cloud-config
	// or ignition.
	UserData []byte
	Format   string
	// Zone is the failure domain the VM must land in; any, if empty.
	Zone string
	// Interfaces are the addresses that pools gave, by the index of the
	// interface in the machine's spec; shorter when the last ones have none.
	Interfaces [][]Address
}

// Address is an address from a pool.
type Address struct {
	// Prefix is the address with the length of its network.
	Prefix netip.Prefix
	// Gateway is the network's default gateway. Invalid when it has none.
	Gateway netip.Addr
}

// Sizer says what machines that do not exist yet will have.
type Sizer[T any] interface {
	// Size reports what a node made from t has before the kubelet takes its
	// part. A template whose cluster is not known yet is an error with
	// Waiting set.
	Size(ctx context.Context, t T) (Size, error)
}

// Size is what a machine has.
type Size struct {
	// CPUs is the number of virtual processors.
	CPUs int64
	// MemoryBytes is the memory.
	MemoryBytes int64
	// DiskBytes is the boot disk. Zero when it is not known.
	DiskBytes int64
	// Architecture is amd64, arm64, s390x or ppc64le. Empty when it is not
	// known.
	Architecture string
	// Devices are extended resources, such as GPUs, by their name.
	Devices map[string]int64
}
