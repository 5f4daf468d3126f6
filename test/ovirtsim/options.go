package ovirtsim

import (
	"maps"
	"time"
)

// Defaults of Options.
const (
	DefaultUsername = "admin@internal"
	DefaultPassword = "nova-Test-1"
	DefaultVersion  = "4.5.4.0"
	// BlankTemplateID is the ID of the template that every engine has.
	BlankTemplateID = "00000000-0000-0000-0000-000000000000"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// Options say what engine to start. The zero value is a complete one.
type Options struct {
	// ListenAddress is host:port; 127.0.0.1 and a free port, if empty.
	ListenAddress string
	// Names are further names and addresses the certificate is valid for.
	Names []string
	// CertDir keeps ca.crt, tls.crt and tls.key, so that a restarted server is
	// trusted by the clients of the old one. They live in memory, if empty.
	CertDir string
	// Username and Password are the administrator's credentials.
	Username, Password string
	// Users are let in beside the administrator, with less to do.
	Users []UserSpec
	// Version is the engine's version, four numbers.
	Version string
	// TokenLifetime is how long a token lasts; 100 hours, if zero.
	TokenLifetime time.Duration
	// TokenIdle is how long an unused token lasts; 30 minutes, if zero.
	TokenIdle time.Duration
	// Timings are added to DefaultTimings.
	Timings map[string]time.Duration
	// Clock is the server's time; the machine's, if nil.
	Clock Clock
	// Guests boot when VMs are started. Without them a VM is only a state.
	Guests Guests
	// ControlSocket is the path of a unix socket to steer the server by.
	ControlSocket string
	// Inventory is what the server holds at the start.
	Inventory Inventory
}

// Names of the times that can be set.
const (
	// TimeWaitForLaunch is from start to powering_up.
	TimeWaitForLaunch = "wait-for-launch"
	// TimePoweringUp is from powering_up to up without a guest agent.
	TimePoweringUp = "powering-up"
	// TimePoweringDown is from shutdown or stop to down.
	TimePoweringDown = "powering-down"
	// TimeReboot is from reboot to up.
	TimeReboot = "reboot"
	// TimeMigrate is how long a migration takes.
	TimeMigrate = "migrate"
	// TimeDiskCreate, TimeDiskExtend and TimeDiskRemove are a disk's.
	TimeDiskCreate = "disk-create"
	TimeDiskExtend = "disk-extend"
	TimeDiskRemove = "disk-remove"
	// TimeThin is how long a VM's disks take that stand on a template's.
	TimeThin = "thin"
	// TimeClone is how long copies of disks take, whatever their size.
	TimeClone = "clone"
	// TimeTemplate is how long a template's disks take.
	TimeTemplate = "template"
	// TimeTransfer is how long an image transfer takes to begin and to end.
	TimeTransfer = "transfer"
	// TimeFailover is from the loss of a host to the restart of its VMs.
	TimeFailover = "failover"
)

// DefaultTimings are brisk, so that tests are, but every state is seen.
func DefaultTimings() map[string]time.Duration {
	return map[string]time.Duration{
		TimeWaitForLaunch: 200 * time.Millisecond,
		TimePoweringUp:    500 * time.Millisecond,
		TimePoweringDown:  300 * time.Millisecond,
		TimeReboot:        500 * time.Millisecond,
		TimeMigrate:       500 * time.Millisecond,
		TimeDiskCreate:    200 * time.Millisecond,
		TimeDiskExtend:    200 * time.Millisecond,
		TimeDiskRemove:    200 * time.Millisecond,
		TimeThin:          200 * time.Millisecond,
		TimeClone:         500 * time.Millisecond,
		TimeTemplate:      500 * time.Millisecond,
		TimeTransfer:      200 * time.Millisecond,
		TimeFailover:      time.Second,
	}
}

// Inventory is what the server holds at the start: data center and cluster
// Default, network ovirtmgmt with a vNIC profile of its name, the template
// Blank, the engine's instance types, and what is said here.
type Inventory struct {
	// Hosts in the cluster; two of 16 cores and 64 GiB, if empty.
	Hosts []HostSpec `json:"hosts,omitempty"`
	// Domains are the data center's; two of NFS with 500 GiB, if empty.
	Domains []DomainSpec `json:"domains,omitempty"`
	// Templates are made beside Blank.
	Templates []TemplateSpec `json:"templates,omitempty"`
	// Networks beside ovirtmgmt, each with a profile of its name.
	Networks []string `json:"networks,omitempty"`
	// DataCenters beside Default, each with a cluster, a network, a domain and
	// a host of its own.
	DataCenters []string `json:"dataCenters,omitempty"`
	// OvercommitPercent is how much of a host's memory may be promised; 100,
	// if zero.
	OvercommitPercent int64 `json:"overcommitPercent,omitempty"`
}

// HostSpec is a host of the cluster.
type HostSpec struct {
	Name      string `json:"name"`
	Cores     int64  `json:"cores"`
	MemoryMiB int64  `json:"memoryMiB"`
}

// DomainSpec is a storage domain.
type DomainSpec struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	SizeGiB int64  `json:"sizeGiB"`
}

// TemplateSpec is a template with one bootable disk on the first domain.
type TemplateSpec struct {
	Name    string `json:"name"`
	DiskGiB int64  `json:"diskGiB"`
	// OS is its operating system; other_linux, if empty.
	OS string `json:"os,omitempty"`
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	orDefault(&o.ListenAddress, "127.0.0.1:0")
	orDefault(&o.Username, DefaultUsername)
	orDefault(&o.Password, DefaultPassword)
	orDefault(&o.Version, DefaultVersion)
	if o.TokenLifetime == 0 {
		o.TokenLifetime = 360000 * time.Second
	}
	if o.TokenIdle == 0 {
		o.TokenIdle = 30 * time.Minute
	}
	if o.Clock == nil {
		o.Clock = realClock{}
	}
	timings := DefaultTimings()
	maps.Copy(timings, o.Timings)
	o.Timings = timings
	o.Inventory = o.Inventory.withDefaults()
	return o
}

func (i Inventory) withDefaults() Inventory {
	if len(i.Hosts) == 0 {
		i.Hosts = []HostSpec{{Name: "host1", Cores: 16, MemoryMiB: 64 << 10}, {Name: "host2", Cores: 16, MemoryMiB: 64 << 10}}
	}
	if len(i.Domains) == 0 {
		i.Domains = []DomainSpec{{Name: "data1", Type: "nfs", SizeGiB: 500}, {Name: "data2", Type: "nfs", SizeGiB: 500}}
	}
	if i.OvercommitPercent == 0 {
		i.OvercommitPercent = 100
	}
	return i
}

func orDefault(value *string, fallback string) {
	if *value == "" {
		*value = fallback
	}
}
