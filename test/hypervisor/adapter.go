package hypervisor

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Machine is an infrastructure machine.
type Machine interface {
	client.Object
	Common() (*infrav1.MachineSpec, *infrav1.MachineStatus)
}

// Cluster is an infrastructure cluster.
type Cluster interface {
	client.Object
	Common() (*infrav1.ClusterSpec, *infrav1.ClusterStatus)
}

// Connector is the driver under test in one process of a manager.
type Connector[M Machine, C Cluster] interface {
	hypervisor.Connector[M]
	hypervisor.Inspector[C]

	// Close ends all sessions.
	Close()
}

// Adapter is a driver and the simulator of its hypervisor.
//
//nolint:interfacebloat // Each method is one thing that only the driver's package knows.
type Adapter[M Machine, C Cluster] interface {
	// Start starts a simulator, which stops at the end of the test.
	Start(t *testing.T, o SimulatorOptions) Simulator

	// Connect returns a connector without sessions, as a manager that starts. Its
	// timeouts are short.
	Connect(reader client.Reader, o ConnectorOptions) Connector[M, C]

	// AddToScheme adds the kinds of the provider to a scheme.
	AddToScheme(s *runtime.Scheme) error

	// Cluster returns a cluster whose placement exists in a new simulator. The
	// suite sets its metadata and the common fields.
	Cluster() C

	// Machine returns a machine with one network interface that can be created in
	// a new simulator, to whose VM CPUs and memory can be added while it runs. The
	// suite sets its metadata.
	Machine(f Fields) M

	// SetSizes changes the CPUs, the memory and the boot disk in the spec of a machine.
	SetSizes(m M, cpus int32, memoryMiB, diskGiB int64)

	// Identity returns a cluster-scoped identity. The suite sets its metadata.
	Identity(infrav1.IdentitySpec) client.Object

	// Request returns the name of a request, such as CloneVM_Task or
	// POST /vms/{}/start, and whether the request changes nothing. The name is
	// empty for a request that waits for changes.
	Request(r *http.Request, body []byte) (name string, read bool)
}

// Traits are properties of a hypervisor's API in which hypervisors differ.
type Traits struct {
	// UserDataRequests is the number of requests that remove the bootstrap data.
	UserDataRequests int
	// NoLogout is set if the API cannot end a session.
	NoLogout bool
	// GuestRequest is a part of the names of requests that go to the guest of each VM
	// by itself, such as those to a guest agent. A session sends one for each VM after
	// its start.
	GuestRequest string
}

// traits returns the traits of an adapter, which has a method Traits if its
// hypervisor differs from the others: one request removes the bootstrap data, and
// sessions are logged out.
func traits(adapter any) Traits {
	if a, ok := adapter.(interface{ Traits() Traits }); ok {
		return a.Traits()
	}
	return Traits{UserDataRequests: 1}
}

// SimulatorOptions are the settings of a simulator.
type SimulatorOptions struct {
	// ForeignVMs is the number of powered-on VMs of other users.
	ForeignVMs int
	// Creation is the duration of the creation of a VM. If not set, it is short.
	Creation time.Duration
}

// ConnectorOptions are the settings of a connector.
type ConnectorOptions struct {
	// MaxCreations limits the concurrent creations, if it is set.
	MaxCreations int
	// Namespace is the namespace of the Secrets of identities.
	Namespace string
	// Quiet stops polls of the hypervisor that no caller requests.
	Quiet bool
	// Lockout makes the delay after a rejected login long.
	Lockout bool
}

// Fields are fields of a machine that each provider has. The zero value sets
// none of them.
type Fields struct {
	// Template, Network and Storage are names of objects of the hypervisor.
	Template, Network, Storage string
	// Addressing are the addresses of the network interface.
	Addressing infrav1.InterfaceAddressing
	// Tag is a tag that does not exist in a new simulator.
	Tag string
}

// VM is a VM in the simulator.
type VM struct {
	// ID is the ID that the driver reports.
	ID   string
	Name string
	Host string
	On   bool
	// NICs are the hardware addresses of the network interfaces.
	NICs []string
	// Addresses is set once the guest has reported addresses.
	Addresses bool
	// CPUs and MemoryMiB are those with which the VM runs, DiskGiB is its boot disk.
	CPUs, MemoryMiB, DiskGiB int64
	// Settings are all settings of the VM that a user with read access can see.
	Settings string
}

// Operation is an operation that a driver starts.
type Operation string

// Operations of a driver.
const (
	Create  Operation = "create"
	PowerOn Operation = "power on"
	// PowerOff is the hard power-off.
	PowerOff Operation = "power off"
	Destroy  Operation = "destroy"
	// Increase increases the CPUs and the memory of a VM that runs.
	Increase Operation = "increase"
)

// Simulator is a running simulator. Its methods fail the test on errors. VMs
// are referenced by ID.
type Simulator interface { //nolint:interfacebloat // one simulator plays one hypervisor
	// Server is host and port, and CABundle verifies the certificate.
	Server() string
	CABundle() string
	// Credentials returns the user of the cluster, which is not limited.
	Credentials() (username, password string)

	// VMs returns all VMs except for templates.
	VMs() []VM
	// Groups returns the names of the VMs in each anti-affinity group.
	Groups() [][]string
	// OwnDisks returns the number of disks that were created with a VM. The VM need
	// not exist any more.
	OwnDisks(name string) int

	// SetPassword changes the password of the user. Sessions stay open.
	SetPassword(password string)
	// ExpireSessions ends all sessions.
	ExpireSessions()
	// SetAllowed removes the permission of the user for an operation, or adds it
	// again.
	SetAllowed(op Operation, allowed bool)

	// ForeignVM creates a VM of another user, in the location of the machines or
	// in another location in which the same name is allowed.
	ForeignVM(name string, elsewhere bool) string
	// PowerOffVM, DestroyVM, RenameVM, SuspendVM and MigrateVM change a VM as a
	// user does, and wait for the result.
	PowerOffVM(id string)
	DestroyVM(id string)
	RenameVM(id, name string)
	SuspendVM(id string)
	MigrateVM(id string)
	// AttachDisk creates a disk and attaches it to a VM, as a CSI driver does.
	// HasDisk reports whether that disk exists.
	AttachDisk(id, disk string)
	HasDisk(disk string) bool
	// Snapshot creates a snapshot of a VM. DeleteSnapshots deletes all of them.
	Snapshot(id string)
	DeleteSnapshots(id string)
	// RenameTemplate renames a template. DefaultTemplate is the template of the
	// machines.
	RenameTemplate(from, to string)
	DefaultTemplate() string

	// SetAddresses reports the addresses of a guest, and that the guest can shut
	// down.
	SetAddresses(id string, addresses ...netip.Prefix)
	// Report reports the progress of the first boot.
	Report(id, text string)
	// StopGuest shuts the guest down from inside.
	StopGuest(id string)
	// IgnoreShutdown makes the guest of each VM ignore shutdown requests.
	IgnoreShutdown()

	// Fail makes the next operation fail after its request was accepted. Reject
	// makes the hypervisor reject the next request of an operation because the
	// object is locked.
	Fail(op Operation)
	Reject(op Operation)
	// SetFull fills the storage of the machines, or frees it.
	SetFull(full bool)
	// SetDuration changes the duration of an operation. That of PowerOn ends when
	// the guest can receive a shutdown.
	SetDuration(op Operation, d time.Duration)
}
