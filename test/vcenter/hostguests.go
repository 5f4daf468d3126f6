package vcenter

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// KubernetesKey is the setting with the version of Kubernetes on the disk of a
// template, and therefore on the disks of its clones. Guests do not see it.
const KubernetesKey = "disk.kubernetes"

// IgnitionKey is the setting of a template whose clones are set up by Ignition.
// Guests do not see it.
const IgnitionKey = "disk.ignition"

// RendererKey is the setting of a template by which cloud-init sets up the
// network of its clones. Guests do not see it.
const RendererKey = "disk.renderer"

const (
	guestInfoPrefix = "guestinfo."
	// guestInfoInterval is how often a guest's settings are read back.
	guestInfoInterval = 2 * time.Second
)

// HostGuests gives VMs a body: a host each, which boots when its VM is powered
// on, and whose addresses and settings are those of the VM. The disk of a VM's
// host is named by the VM's BIOS UUID.
type HostGuests struct {
	hosts   *host.Guests[*guestHost]
	reports Reports
}

// NewHostGuests returns Guests that boot hosts with runner.
func NewHostGuests(runner *host.Runner) *HostGuests {
	return &HostGuests{hosts: host.NewGuests[*guestHost](runner, guestInfoInterval)}
}

// Attach sets the server to which hosts report.
func (g *HostGuests) Attach(reports Reports) {
	g.reports = reports
}

// Host returns the running host of a VM, or nil.
func (g *HostGuests) Host(biosUUID string) *host.Host {
	h, _, _ := g.hosts.Get(biosUUID)
	return h
}

// PowerOn boots the VM's host.
func (g *HostGuests) PowerOn(ctx context.Context, vm VM) error {
	spec := hostSpec(vm)
	return g.hosts.PowerOn(ctx, spec, &guestHost{id: vm.BIOSUUID, reports: g.reports, info: spec.GuestInfo})
}

// PowerOff stops the VM's host. The earlier reports of the host are delivered
// before it returns.
func (g *HostGuests) PowerOff(ctx context.Context, vm VM, soft bool) error {
	return g.hosts.PowerOff(ctx, vm.BIOSUUID, soft)
}

// Destroy removes the VM's disk.
func (g *HostGuests) Destroy(ctx context.Context, vm VM) error {
	return g.hosts.Destroy(ctx, vm.BIOSUUID)
}

// Reconfigure shows a running host its VM's changed settings.
func (g *HostGuests) Reconfigure(_ context.Context, vm VM) error {
	h, running, ok := g.hosts.Get(vm.BIOSUUID)
	if !ok {
		return nil
	}
	return running.show(h, guestInfo(vm))
}

// guestHost reports the state of a running host to the vCenter.
type guestHost struct {
	id      string
	reports Reports

	mu   sync.Mutex
	info map[string]string // as both sides know it
}

// Addressed reports the host's addresses and its own name.
func (g *guestHost) Addressed(ctx context.Context, h *host.Host, addresses []host.Address) error {
	if err := g.reports.SetGuestAddresses(g.id, guestNICs(addresses)); err != nil {
		return err
	}
	return g.reportName(ctx, h)
}

// Looked reports the settings that the guest has written.
func (g *guestHost) Looked(ctx context.Context, h *host.Host) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, err := h.GuestInfo()
	if err != nil {
		return err
	}
	changed := false
	for key, value := range now {
		if g.info[key] == value {
			continue
		}
		if err := g.reports.SetGuestInfo(g.id, key, value); err != nil {
			return err
		}
		g.info[key] = value
		changed = true
	}
	if changed {
		return g.reportName(ctx, h)
	}
	return nil
}

// Stopped reports that the host ended by itself.
func (g *guestHost) Stopped() error {
	return g.reports.GuestStopped(g.id)
}

// show writes settings into a host if they differ from its settings.
func (g *guestHost) show(h *host.Host, want map[string]string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.info {
		if _, ok := want[key]; ok {
			continue
		}
		if err := h.SetGuestInfo(key, ""); err != nil {
			return err
		}
		delete(g.info, key)
	}
	for key, value := range want {
		if g.info[key] == value {
			continue
		}
		if err := h.SetGuestInfo(key, value); err != nil {
			return err
		}
		g.info[key] = value
	}
	return nil
}

// reportName reports the host's own name. A host that is still starting or
// already stopping has none to say.
func (g *guestHost) reportName(ctx context.Context, h *host.Host) error {
	out, err := h.Exec(ctx, "hostname")
	name := strings.TrimSpace(string(out))
	if err != nil || name == "" {
		return nil //nolint:nilerr // the next change asks again
	}
	return g.reports.SetGuestHostName(g.id, name)
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
		GuestInfo:    guestInfo(vm),
		Kubernetes:   vm.ExtraConfig[KubernetesKey],
		Ignition:     vm.ExtraConfig[IgnitionKey] != "",
		Renderer:     vm.ExtraConfig[RendererKey],
		DataDisksGiB: vm.DataDisksGiB,
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
	if vm.OVFEnvironment != "" {
		info[ovfKey] = vm.OVFEnvironment
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
