package vcenter

import (
	"context"
	"log"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// KubernetesKey is the setting by which a template says what version of
// Kubernetes is on its disk, and hence on those of its clones. Guests do not see
// it.
const KubernetesKey = "disk.kubernetes"

const (
	guestInfoPrefix = "guestinfo."
	// guestInfoInterval is how often a guest's settings are read back.
	guestInfoInterval = 2 * time.Second
)

// HostGuests gives VMs a body: a host each, which boots when its VM is powered
// on, and whose addresses and settings are those of the VM.
type HostGuests struct {
	runner  *host.Runner
	reports Reports

	mu    sync.Mutex
	hosts map[string]*guestHost // by BIOS UUID
}

// guestHost is a running host.
type guestHost struct {
	*host.Host
	vm VM
	// followed is closed when nothing is reported for the host any more.
	followed chan struct{}

	mu       sync.Mutex
	stopping bool
	info     map[string]string // as both sides know it
}

// NewHostGuests returns Guests that boot hosts with runner. The disk of a VM
// is named by its BIOS UUID.
func NewHostGuests(runner *host.Runner) *HostGuests {
	return &HostGuests{runner: runner, hosts: map[string]*guestHost{}}
}

// Attach says where hosts report to.
func (g *HostGuests) Attach(reports Reports) {
	g.reports = reports
}

// Host returns the running host of a VM, or nil.
func (g *HostGuests) Host(biosUUID string) *host.Host {
	if running := g.running(biosUUID); running != nil {
		return running.Host
	}
	return nil
}

func (g *HostGuests) running(biosUUID string) *guestHost {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hosts[biosUUID]
}

// PowerOn boots the VM's host.
func (g *HostGuests) PowerOn(ctx context.Context, vm VM) error {
	spec := hostSpec(vm)
	h, err := g.runner.PowerOn(ctx, spec)
	if err != nil {
		return err
	}
	running := &guestHost{Host: h, vm: vm, info: spec.GuestInfo, followed: make(chan struct{})}
	g.mu.Lock()
	g.hosts[vm.BIOSUUID] = running
	g.mu.Unlock()
	go g.follow(ctx, running)
	return nil
}

// PowerOff ends the VM's host. What it reported before is delivered by then.
func (g *HostGuests) PowerOff(ctx context.Context, vm VM, soft bool) error {
	running := g.running(vm.BIOSUUID)
	if running == nil {
		return nil
	}
	running.mu.Lock()
	running.stopping = true
	running.mu.Unlock()
	if err := running.PowerOff(ctx, soft); err != nil {
		return err
	}
	select {
	case <-running.followed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Destroy removes the VM's disk.
func (g *HostGuests) Destroy(ctx context.Context, vm VM) error {
	return g.runner.Destroy(ctx, vm.BIOSUUID)
}

// Reconfigure shows a running host its VM's changed settings.
func (g *HostGuests) Reconfigure(_ context.Context, vm VM) error {
	running := g.running(vm.BIOSUUID)
	if running == nil {
		return nil
	}
	want := guestInfo(vm)
	running.mu.Lock()
	defer running.mu.Unlock()
	for key := range running.info {
		if _, ok := want[key]; ok {
			continue
		}
		if err := running.SetGuestInfo(key, ""); err != nil {
			return err
		}
		delete(running.info, key)
	}
	for key, value := range want {
		if running.info[key] == value {
			continue
		}
		if err := running.SetGuestInfo(key, value); err != nil {
			return err
		}
		running.info[key] = value
	}
	return nil
}

// follow reports what a host does until it is off.
func (g *HostGuests) follow(ctx context.Context, running *guestHost) {
	defer close(running.followed)
	ticker := time.NewTicker(guestInfoInterval)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case addresses, ok := <-running.Changes():
			if !ok {
				g.ended(running)
				return
			}
			err = g.reports.SetGuestAddresses(running.vm.BIOSUUID, guestNICs(addresses))
			if err == nil {
				err = g.reportName(ctx, running)
			}
		case <-ticker.C:
			err = g.reportInfo(ctx, running)
		}
		if err != nil {
			log.Printf("host of %s: %v", running.vm.Name, err)
		}
	}
}

func (g *HostGuests) ended(running *guestHost) {
	g.mu.Lock()
	if g.hosts[running.vm.BIOSUUID] == running {
		delete(g.hosts, running.vm.BIOSUUID)
	}
	g.mu.Unlock()
	running.mu.Lock()
	stopping := running.stopping
	running.mu.Unlock()
	if stopping {
		return
	}
	if err := g.reports.GuestStopped(running.vm.BIOSUUID); err != nil {
		log.Printf("host of %s: %v", running.vm.Name, err)
	}
}

// reportInfo reports what the guest wrote into its settings.
func (g *HostGuests) reportInfo(ctx context.Context, running *guestHost) error {
	running.mu.Lock()
	defer running.mu.Unlock()
	now, err := running.GuestInfo()
	if err != nil {
		return err
	}
	changed := false
	for key, value := range now {
		if running.info[key] == value {
			continue
		}
		if err := g.reports.SetGuestInfo(running.vm.BIOSUUID, key, value); err != nil {
			return err
		}
		running.info[key] = value
		changed = true
	}
	if changed {
		return g.reportName(ctx, running)
	}
	return nil
}

// reportName reports the host's own name. A host that is still starting or
// already stopping has none to say.
func (g *HostGuests) reportName(ctx context.Context, running *guestHost) error {
	out, err := running.Exec(ctx, "hostname")
	name := strings.TrimSpace(string(out))
	if err != nil || name == "" {
		return nil //nolint:nilerr // the next change asks again
	}
	return g.reports.SetGuestHostName(running.vm.BIOSUUID, name)
}

// hostSpec is a VM's hardware as its kernel shows it. See the package's
// documentation for product_uuid.
func hostSpec(vm VM) host.Spec {
	spec := host.Spec{
		Name: vm.Name,
		Disk: vm.BIOSUUID,
		DMI: map[string]string{
			"sys_vendor":     "VMware, Inc.",
			"product_name":   "VMware7,1",
			"product_uuid":   vm.BIOSUUID,
			"product_serial": DMISerial(vm.BIOSUUID),
		},
		GuestInfo:  guestInfo(vm),
		Kubernetes: vm.ExtraConfig[KubernetesKey],
	}
	for _, nic := range vm.NICs {
		spec.MACs = append(spec.MACs, nic.MAC)
	}
	return spec
}

func guestInfo(vm VM) map[string]string {
	info := map[string]string{}
	for key, value := range vm.ExtraConfig {
		if strings.HasPrefix(key, guestInfoPrefix) {
			info[key] = value
		}
	}
	return info
}

func guestNICs(addresses []host.Address) []GuestNIC {
	var macs []string
	byMAC := map[string][]netip.Prefix{}
	for _, address := range addresses {
		if _, ok := byMAC[address.MAC]; !ok {
			macs = append(macs, address.MAC)
		}
		byMAC[address.MAC] = append(byMAC[address.MAC], address.Prefix)
	}
	nics := make([]GuestNIC, 0, len(macs))
	for _, mac := range macs {
		nics = append(nics, GuestNIC{MAC: mac, Addresses: byMAC[mac]})
	}
	return nics
}

var (
	_ Guests       = (*HostGuests)(nil)
	_ Reconfigurer = (*HostGuests)(nil)
)
