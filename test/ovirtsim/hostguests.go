package ovirtsim

import (
	"context"
	"log"
	"net/netip"
	"strings"
	"sync"
	"time"

	testhost "github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// systemInterval is how often a guest's agent is asked for its system. A real
// host asks every two minutes (qga_sysinfo_period); nobody learns from waiting
// that long.
const systemInterval = 5 * time.Second

// configDriveLabel is the volume label of the drive that the engine makes.
const configDriveLabel = "config-2"

// HostGuests gives VMs a body: a host each, which boots when its VM is started,
// finds the configuration drive that the engine made, and whose addresses are
// those of the VM.
type HostGuests struct {
	runner  *testhost.Runner
	reports Reports

	mu    sync.Mutex
	hosts map[string]*guestHost // by the VM's ID
}

// guestHost is a running host.
type guestHost struct {
	*testhost.Host
	vm VM
	// followed is closed when nothing is reported for the host any more.
	followed chan struct{}
	// system is what was reported last. Only the one who follows touches it.
	system GuestSystem

	mu       sync.Mutex
	stopping bool
}

// NewHostGuests returns Guests that boot hosts with runner. The disk of a VM's
// host is named by the VM's ID.
func NewHostGuests(runner *testhost.Runner) *HostGuests {
	return &HostGuests{runner: runner, hosts: map[string]*guestHost{}}
}

// Attach says where hosts report to.
func (g *HostGuests) Attach(reports Reports) {
	g.reports = reports
}

// Host returns the running host of a VM, or nil.
func (g *HostGuests) Host(id string) *testhost.Host {
	if running := g.running(id); running != nil {
		return running.Host
	}
	return nil
}

func (g *HostGuests) running(id string) *guestHost {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hosts[id]
}

// PowerOn boots the VM's host.
func (g *HostGuests) PowerOn(ctx context.Context, vm VM) error {
	h, err := g.runner.PowerOn(ctx, hostSpec(vm))
	if err != nil {
		return err
	}
	running := &guestHost{Host: h, vm: vm, followed: make(chan struct{})}
	g.mu.Lock()
	g.hosts[vm.ID] = running
	g.mu.Unlock()
	go g.follow(ctx, running)
	return nil
}

// PowerOff ends the VM's host. What it reported before is delivered by then.
func (g *HostGuests) PowerOff(ctx context.Context, vm VM, soft bool) error {
	running := g.running(vm.ID)
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

// Destroy removes the host's disk.
func (g *HostGuests) Destroy(ctx context.Context, vm VM) error {
	return g.runner.Destroy(ctx, vm.ID)
}

// follow reports what a host does until it is off.
func (g *HostGuests) follow(ctx context.Context, running *guestHost) {
	defer close(running.followed)
	ticker := time.NewTicker(systemInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case addresses, ok := <-running.Changes():
			if !ok {
				g.ended(running)
				return
			}
			if err := g.report(ctx, running, addresses); err != nil {
				log.Printf("host of %s: %v", running.vm.Name, err)
			}
		case <-ticker.C:
			if err := g.reportSystem(ctx, running); err != nil {
				log.Printf("host of %s: %v", running.vm.Name, err)
			}
		}
	}
}

// reportSystem reports what the host's os-release says, as the guest's agent
// reads it. A host that is still starting or already stopping says nothing.
func (g *HostGuests) reportSystem(ctx context.Context, running *guestHost) error {
	out, err := running.Exec(ctx, "cat", "/etc/os-release")
	if err != nil {
		return nil //nolint:nilerr // it is asked again
	}
	said := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		said[key] = strings.Trim(value, `"`)
	}
	system := GuestSystem{Name: said["NAME"], Version: said["VERSION_ID"], Variant: said["VARIANT"]}
	if system == running.system {
		return nil
	}
	running.system = system
	return g.reports.SetGuestSystem(running.vm.ID, system)
}

func (g *HostGuests) ended(running *guestHost) {
	g.mu.Lock()
	if g.hosts[running.vm.ID] == running {
		delete(g.hosts, running.vm.ID)
	}
	g.mu.Unlock()
	running.mu.Lock()
	stopping := running.stopping
	running.mu.Unlock()
	if stopping {
		return
	}
	if err := g.reports.GuestStopped(running.vm.ID); err != nil {
		log.Printf("host of %s: %v", running.vm.Name, err)
	}
}

// report reports the host's addresses and its own name. A host that is still
// starting or already stopping has no name to say.
func (g *HostGuests) report(ctx context.Context, running *guestHost, addresses []testhost.Address) error {
	if err := g.reports.SetGuestAddresses(running.vm.ID, guestNICs(addresses)); err != nil {
		return err
	}
	out, err := running.Exec(ctx, "hostname")
	name := strings.TrimSpace(string(out))
	if err != nil || name == "" {
		return nil //nolint:nilerr // the next change asks again
	}
	return g.reports.SetGuestHostName(running.vm.ID, name)
}

// hostSpec is a VM's hardware as its kernel shows it.
func hostSpec(vm VM) testhost.Spec {
	spec := testhost.Spec{Name: vm.Name, Disk: vm.ID, Kubernetes: vm.Kubernetes, DMI: DMI(vm), Seeds: map[string]map[string][]byte{}}
	for _, nic := range vm.NICs {
		spec.MACs = append(spec.MACs, nic.MAC)
	}
	if len(vm.Drive) > 0 {
		spec.Seeds[configDriveLabel] = vm.Drive
	}
	// A payload with another label is a disk that cloud-init does not look at.
	if label := strings.ToLower(vm.PayloadLabel); len(vm.Payload) > 0 && (label == configDriveLabel || label == "cidata") {
		spec.Seeds[label] = vm.Payload
	}
	return spec
}

// guestNICs are a host's addresses by network card.
func guestNICs(addresses []testhost.Address) []GuestNIC {
	var nics []GuestNIC
	at := map[string]int{}
	for _, address := range addresses {
		i, ok := at[address.MAC]
		if !ok {
			i = len(nics)
			at[address.MAC] = i
			nics = append(nics, GuestNIC{Name: address.Interface, MAC: address.MAC, Addresses: []netip.Prefix{}})
		}
		nics[i].Addresses = append(nics[i].Addresses, address.Prefix)
	}
	return nics
}

var _ Guests = (*HostGuests)(nil)
