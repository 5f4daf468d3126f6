package pvesim

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	testhost "github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/iso"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
)

// systemInterval is the interval at which the state of a guest is read.
const systemInterval = 5 * time.Second

// HostGuests gives VMs a machine: a host each, which boots when its VM is started
// and finds the ISO image in a drive of its VM.
type HostGuests struct {
	hosts   *testhost.Guests[*guestHost]
	reports cluster.Reports
}

// NewHostGuests returns Guests that boot hosts with runner.
func NewHostGuests(runner *testhost.Runner) *HostGuests {
	return &HostGuests{hosts: testhost.NewGuests[*guestHost](runner, systemInterval)}
}

// Attach sets the cluster to which hosts report.
func (g *HostGuests) Attach(reports cluster.Reports) { g.reports = reports }

// Host returns the running host of a VM, or nil.
func (g *HostGuests) Host(id string) *testhost.Host {
	h, _, _ := g.hosts.Get(id)
	return h
}

// PowerOn boots the VM's host.
func (g *HostGuests) PowerOn(ctx context.Context, vm cluster.VM) error {
	spec, err := hostSpec(vm)
	if err != nil {
		return err
	}
	return g.hosts.PowerOn(ctx, spec, &guestHost{id: vm.ID, reports: g.reports})
}

// PowerOff stops the VM's host.
func (g *HostGuests) PowerOff(ctx context.Context, vm cluster.VM, soft bool) error {
	return g.hosts.PowerOff(ctx, vm.ID, soft)
}

// Destroy deletes the host's disk.
func (g *HostGuests) Destroy(ctx context.Context, vm cluster.VM) error {
	return g.hosts.Destroy(ctx, vm.ID)
}

// ReadFile reads a file of a running host.
func (g *HostGuests) ReadFile(ctx context.Context, vm cluster.VM, path string) ([]byte, error) {
	h, _, ok := g.hosts.Get(vm.ID)
	if !ok {
		return nil, fmt.Errorf("VM %s does not run", vm.Name)
	}
	return h.Exec(ctx, "cat", path)
}

// guestHost reports the state of a running host as its guest agent does.
type guestHost struct {
	id      string
	reports cluster.Reports
	guest   cluster.Guest
	// system is the os-release of the last report.
	system string
}

// Addressed reports the host's addresses and its own name. A host that is still
// starting or already stopping has no name.
func (g *guestHost) Addressed(ctx context.Context, h *testhost.Host, addresses []testhost.Address) error {
	g.guest.NICs = guestNICs(addresses)
	if out, err := h.Exec(ctx, "hostname"); err == nil {
		g.guest.HostName = strings.TrimSpace(string(out))
	}
	return g.reports.SetGuest(g.id, g.guest)
}

// Looked reports the host's os-release. A host that is starting or stopping
// reports nothing.
func (g *guestHost) Looked(ctx context.Context, h *testhost.Host) error {
	out, err := h.Exec(ctx, "cat", "/etc/os-release")
	if err != nil || string(out) == g.system {
		return nil //nolint:nilerr // it is read again
	}
	g.system = string(out)
	g.guest.System = osRelease(g.system)
	return g.reports.SetGuest(g.id, g.guest)
}

// osRelease returns the fields that guest-get-osinfo has.
func osRelease(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "ID", "NAME", "PRETTY_NAME", "VERSION", "VERSION_ID", "VARIANT", "VARIANT_ID":
			fields[strings.ToLower(key)] = strings.Trim(value, `"`)
		}
	}
	return fields
}

// Stopped reports that the host ended by itself.
func (g *guestHost) Stopped() error { return g.reports.GuestStopped(g.id) }

// hostSpec is a VM's hardware as its kernel shows it.
func hostSpec(vm cluster.VM) (testhost.Spec, error) {
	spec := testhost.Spec{
		Name: vm.Name, Disk: vm.ID, DataDisksGiB: vm.DataDisksGiB, Kubernetes: vm.Kubernetes, Renderer: vm.Renderer, Ignition: vm.Ignition,
		MACs: vm.MACs, DMI: DMI(vm), Seeds: map[string]map[string][]byte{},
	}
	for _, data := range vm.CDs {
		image, err := iso.Read(data)
		if err != nil {
			continue // a disc that the guest cannot mount
		}
		// Other labels are discs that neither cloud-init nor Ignition reads.
		if label := strings.ToLower(image.Label); label == "cidata" || label == "config-2" {
			if spec.Seeds[label] != nil {
				return spec, fmt.Errorf("VM %s has two discs with the label %s", vm.Name, label)
			}
			spec.Seeds[label] = image.Files
		}
	}
	return spec, nil
}

// DMI contains the fields that a VM's BIOS reports to its operating system: those
// of the option smbios1, and the defaults of QEMU.
func DMI(vm cluster.VM) map[string]string {
	p, _ := qemu.Parse("smbios1", vm.Options["smbios1"])
	fields := map[string]string{
		"sys_vendor": "QEMU", "product_name": "Standard PC (i440FX + PIIX, 1996)", "product_uuid": strings.ToLower(vm.UUID), "product_serial": "",
	}
	for key, name := range map[string]string{"manufacturer": "sys_vendor", "product": "product_name", "serial": "product_serial"} {
		value := p[key]
		if plain, err := base64.StdEncoding.DecodeString(value); err == nil && p.On("base64") {
			value = string(plain)
		}
		if value != "" {
			fields[name] = value
		}
	}
	return fields
}

// guestNICs are a host's addresses by network interface.
func guestNICs(addresses []testhost.Address) []cluster.GuestNIC {
	var nics []cluster.GuestNIC
	at := map[string]int{}
	for _, address := range addresses {
		i, ok := at[address.MAC]
		if !ok {
			i = len(nics)
			at[address.MAC] = i
			nics = append(nics, cluster.GuestNIC{Name: address.Interface, MAC: address.MAC})
		}
		nics[i].Addresses = append(nics[i].Addresses, address.Prefix)
	}
	return nics
}

var (
	_ cluster.Guests     = (*HostGuests)(nil)
	_ cluster.FileReader = (*HostGuests)(nil)
)
