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

// Options are the settings of an engine. The zero value starts a complete
// engine.
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
	// Language is that of faults for requests whose Accept-Language names no
	// other, ru or en; ru, if empty, as sites of zVirt have it.
	Language string
	// OnRequest is called with every request of the API before it is performed:
	// its method and its path with {} for IDs, such as /vms/{}/start. It may call
	// the server.
	OnRequest func(method, path string)
	// ControlSocket is the path of a unix socket to steer the server by.
	ControlSocket string
	// Inventory contains the objects at the start.
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
	// TimeSnapshot is how long a snapshot takes to be made or removed.
	TimeSnapshot = "snapshot"
	// TimeGroupEdit is how long an affinity group is locked by a change: others
	// that come meanwhile are refused.
	TimeGroupEdit = "group-edit"
	// TimeListVM is the time that the engine needs for each VM of a list, and
	// TimeFollow the time for each object of which it follows a link: it queries
	// its database for each.
	TimeListVM = "list-vm"
	TimeFollow = "follow"
	// TimeGuestReport is from the report of a guest's agent until the API shows
	// it: hosts collect reports, and engines ask hosts now and then.
	TimeGuestReport = "guest-report"
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
		TimeSnapshot:      200 * time.Millisecond,
		TimeGroupEdit:     0,
		TimeListVM:        0,
		TimeFollow:        0,
		TimeGuestReport:   0,
		TimeFailover:      time.Second,
	}
}

// withDefaults sets the defaults of fields that are not set.
func (o Options) withDefaults() Options {
	orDefault(&o.ListenAddress, "127.0.0.1:0")
	orDefault(&o.Username, DefaultUsername)
	orDefault(&o.Password, DefaultPassword)
	orDefault(&o.Version, DefaultVersion)
	orDefault(&o.Language, russian)
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

func orDefault(value *string, fallback string) {
	if *value == "" {
		*value = fallback
	}
}
