package ovirtsim

import (
	"context"
	"net/netip"
	"strings"
	"time"

	testhost "github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// systemInterval is the interval at which the operating system is read from a
// guest agent. A real host reads it every two minutes (qga_sysinfo_period),
// which is too long for a test.
const systemInterval = 5 * time.Second

// configDriveLabel is the volume label of the drive that the engine makes.
const configDriveLabel = "config-2"

// HostGuests gives VMs a body: a host each, which boots when its VM is started,
// finds the configuration drive that the engine made, and whose addresses are
// those of the VM. The disk of a VM's host is named by the VM's ID.
type HostGuests struct {
	hosts   *testhost.Guests[*guestHost]
	reports Reports
}

// NewHostGuests returns Guests that boot hosts with runner.
func NewHostGuests(runner *testhost.Runner) *HostGuests {
	return &HostGuests{hosts: testhost.NewGuests[*guestHost](runner, systemInterval)}
}

// Attach sets the server to which hosts report.
func (g *HostGuests) Attach(reports Reports) {
	g.reports = reports
}

// Host returns the running host of a VM, or nil.
func (g *HostGuests) Host(id string) *testhost.Host {
	h, _, _ := g.hosts.Get(id)
	return h
}

// PowerOn boots the VM's host.
func (g *HostGuests) PowerOn(ctx context.Context, vm VM) error {
	return g.hosts.PowerOn(ctx, hostSpec(vm), &guestHost{id: vm.ID, reports: g.reports})
}

// PowerOff stops the VM's host. The earlier reports of the host are delivered
// before it returns.
func (g *HostGuests) PowerOff(ctx context.Context, vm VM, soft bool) error {
	return g.hosts.PowerOff(ctx, vm.ID, soft)
}

// Destroy removes the host's disk.
func (g *HostGuests) Destroy(ctx context.Context, vm VM) error {
	return g.hosts.Destroy(ctx, vm.ID)
}

// guestHost reports the state of a running host to the engine.
type guestHost struct {
	id      string
	reports Reports
	// system is the last report.
	system GuestSystem
}

// Addressed reports the host's addresses and its own name. A host that is still
// starting or already stopping has no name to say.
func (g *guestHost) Addressed(ctx context.Context, h *testhost.Host, addresses []testhost.Address) error {
	if err := g.reports.SetGuestAddresses(g.id, guestNICs(addresses)); err != nil {
		return err
	}
	out, err := h.Exec(ctx, "hostname")
	name := strings.TrimSpace(string(out))
	if err != nil || name == "" {
		return nil //nolint:nilerr // the next change asks again
	}
	return g.reports.SetGuestHostName(g.id, name)
}

// Looked reports the host's os-release, as the guest agent reads it. A host
// that is starting or stopping reports nothing.
func (g *guestHost) Looked(ctx context.Context, h *testhost.Host) error {
	out, err := h.Exec(ctx, "cat", "/etc/os-release")
	if err != nil {
		return nil //nolint:nilerr // it is asked again
	}
	release := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		release[key] = strings.Trim(value, `"`)
	}
	system := GuestSystem{Name: release["NAME"], Version: release["VERSION_ID"], Variant: release["VARIANT"]}
	if system == g.system {
		return nil
	}
	g.system = system
	return g.reports.SetGuestSystem(g.id, system)
}

// Stopped reports that the host ended by itself.
func (g *guestHost) Stopped() error {
	return g.reports.GuestStopped(g.id)
}

// hostSpec is a VM's hardware as its kernel shows it.
func hostSpec(vm VM) testhost.Spec {
	spec := testhost.Spec{
		Name: vm.Name, Disk: vm.ID, DataDisksGiB: vm.DataDisksGiB, Kubernetes: vm.Kubernetes, Renderer: vm.Renderer, Ignition: ignition(vm.OS),
		DMI: DMI(vm), Seeds: map[string]map[string][]byte{},
	}
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
