package vcenter

import (
	"maps"
	"sync"
	"time"
)

// Options are the settings of a vCenter. The zero value starts a complete
// vCenter.
type Options struct {
	// ListenAddress is host:port; 127.0.0.1 and a free port, if empty.
	ListenAddress string
	// Names are further host names and addresses the certificate is valid
	// for, beside the listen address, localhost and 127.0.0.1.
	Names []string
	// CertDir keeps ca.crt, tls.crt and tls.key, so that a restarted server is
	// trusted by the clients of the old one. They live in memory, if empty.
	CertDir string
	// Username and Password are the only credentials that are let in.
	// DefaultUsername and DefaultPassword, if empty.
	Username string
	Password string
	// Version is the vCenter version reported; DefaultVersion, if empty.
	Version string
	// InstanceUUID names this vCenter; a new one, if empty.
	InstanceUUID string
	// Delays are added to DefaultDelays.
	Delays map[string]time.Duration
	// ClonesPerHost and ClonesPerDatastore are how many clones run on a host and on
	// a datastore at the same time; 8 and 128, as vCenter has it, if they are zero.
	// The tasks of further clones stay queued.
	ClonesPerHost, ClonesPerDatastore int
	// RecentFor is how long tasks that have ended are listed; 10 minutes, as vCenter
	// has it, if it is zero.
	RecentFor time.Duration
	// Latency is an additional duration of each request, as the network and the
	// queues of a server cause it.
	Latency time.Duration
	// UpdateDelay is how late the property collector reports changes: an answer has
	// the state of the inventory when the first change was found. A real collector is 1
	// to 5 seconds late.
	UpdateDelay time.Duration
	// GuestDelay is how late everything is known that guests report or write into
	// their settings. Real VMware Tools are up to 30 seconds late and more.
	GuestDelay time.Duration
	// Guests boot when VMs are powered on. Without them a VM is only a state.
	Guests Guests
	// ControlSocket is the path of a unix socket to steer the server by.
	ControlSocket string
	// Inventory contains the objects at the start.
	Inventory Inventory
}

// Defaults of Options and Inventory.
const (
	DefaultUsername = "administrator@vsphere.local"
	DefaultPassword = "nova-Test-1"
	DefaultVersion  = "8.0.3"
	DefaultTemplate = "nova-node-v1.36.3"
	DefaultFolder   = "nova"
)

// Inventory contains the objects that the server has at the start: datacenter
// DC0 with cluster DC0_C0, its root resource pool Resources and the pool
// DC0_C0_RP1, the standard network "VM Network", the distributed port group
// DC0_DVPG0, the opaque network DC0_NSX0, and the objects named here.
type Inventory struct {
	// Hosts in the cluster; 2, if zero.
	Hosts int `json:"hosts,omitempty"`
	// Datastores, named LocalDS_0 and so on; 2, if zero.
	Datastores int `json:"datastores,omitempty"`
	// Folders are made below /DC0/vm; DefaultFolder, if empty.
	Folders []string `json:"folders,omitempty"`
	// Templates are made in /DC0/vm; DefaultTemplate, if empty.
	Templates []Template `json:"templates,omitempty"`
}

// Template is a VM marked as a template, with one NIC on "VM Network".
type Template struct {
	Name string `json:"name"`
	// DiskGiB is the size of its only disk; 20, if zero.
	DiskGiB int64 `json:"diskGiB,omitempty"`
	// CPUs is 2 and MemoryMiB 2048, if zero.
	CPUs      int32 `json:"cpus,omitempty"`
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// VApp gives it the properties of an OVA, as Ubuntu's have them.
	VApp bool `json:"vApp,omitempty"`
	// ExtraConfig is in the template and hence in each of its clones.
	ExtraConfig map[string]string `json:"extraConfig,omitempty"`
}

func (o *Options) setDefaults() {
	setDefault(&o.ListenAddress, "127.0.0.1:0")
	setDefault(&o.Username, DefaultUsername)
	setDefault(&o.Password, DefaultPassword)
	setDefault(&o.Version, DefaultVersion)
	setDefault(&o.InstanceUUID, newUUID(0))
	setDefault(&o.RecentFor, 10*time.Minute)
	setDefault(&o.ClonesPerHost, 8)
	setDefault(&o.ClonesPerDatastore, 128)
	setDefault(&o.Inventory.Hosts, 2)
	setDefault(&o.Inventory.Datastores, 2)
	if len(o.Inventory.Folders) == 0 {
		o.Inventory.Folders = []string{DefaultFolder}
	}
	if len(o.Inventory.Templates) == 0 {
		o.Inventory.Templates = []Template{{Name: DefaultTemplate}}
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// DefaultDelays are how long tasks take by method. A task that is not named
// takes as long as "*".
func DefaultDelays() map[string]time.Duration {
	return map[string]time.Duration{
		methodClone: time.Second,
		"*":         100 * time.Millisecond,
	}
}

// delays are the current ones.
type delays struct {
	mu       sync.Mutex
	byMethod map[string]time.Duration
}

func newDelays(add map[string]time.Duration) *delays {
	d := &delays{byMethod: DefaultDelays()}
	maps.Copy(d.byMethod, add)
	return d
}

func (d *delays) set(method string, delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byMethod[method] = delay
}

func (d *delays) of(method string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if delay, ok := d.byMethod[method]; ok {
		return delay
	}
	return d.byMethod["*"]
}
