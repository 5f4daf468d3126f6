package plan

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
)

// Devices are PCI devices of one host by their names, such as pci_0000_04_00_0.
type Devices struct {
	// Host is the ID of the host; empty for no devices.
	Host  string
	Names []string
}

func (d Devices) String() string {
	if d.Host == "" {
		return ""
	}
	return d.Host + "/" + strings.Join(d.Names, ",")
}

// ReadDevices reads the text that String writes.
func ReadDevices(text string) Devices {
	host, names, ok := strings.Cut(text, "/")
	if !ok {
		return Devices{}
	}
	return Devices{Host: host, Names: strings.Split(names, ",")}
}

// Has reports whether a device is one of d.
func (d Devices) Has(host, name string) bool {
	return d.Host == host && slices.Contains(d.Names, name)
}

// ChooseDevices returns devices of the kinds that a machine wants, of the host that
// has the most of them free. The engine chooses neither: it takes a device only for
// a VM that is pinned to the device's host, and finds out when it starts the VM
// whether another VM has the device. So reserved reports the devices of VMs that do
// not run yet.
func ChooseDevices(h *infrav1.NovaZVirtHardware, hosts []ovirt.Host, reserved func(host, name string) bool) (Devices, error) {
	best, most := Devices{}, 0
	for i := range hosts {
		host := &hosts[i]
		if host.Status != "up" || host.MaxSchedulingMemory < h.MemoryMiB<<20 {
			continue
		}
		names, free := pick(h.PCIDevices, host, reserved)
		if names != nil && free > most {
			best, most = Devices{Host: host.ID, Names: names}, free
		}
	}
	if most == 0 {
		return best, Failure(infrav1.InsufficientResourcesReason,
			"hardware.pciDevices: none of the %d hosts that the VM may run on is up, has the memory and has these devices free: %s", len(hosts), kinds(h.PCIDevices))
	}
	return best, nil
}

// pick returns devices of a host, or nil if it lacks one, and how many devices of
// the kinds it has free.
func pick(want []infrav1.NovaZVirtPCIDevice, host *ovirt.Host, reserved func(host, name string) bool) (names []string, free int) {
	devices := host.Devices.Devices
	// The devices of an IOMMU group are passed through together.
	taken := map[int]bool{}
	for _, d := range devices {
		if d.IOMMUGroup != nil && (d.VM != nil || reserved(host.ID, d.Name)) {
			taken[*d.IOMMUGroup] = true
		}
	}
	devices = slices.DeleteFunc(slices.Clone(devices), func(d ovirt.HostDevice) bool {
		return d.Capability != "pci" || d.IOMMUGroup == nil || taken[*d.IOMMUGroup] ||
			!slices.ContainsFunc(want, func(w infrav1.NovaZVirtPCIDevice) bool { return is(d, w) })
	})
	free = len(devices)
	for _, w := range want {
		i := slices.IndexFunc(devices, func(d ovirt.HostDevice) bool { return is(d, w) })
		if i < 0 {
			return nil, free
		}
		names = append(names, devices[i].Name)
		devices = slices.Delete(devices, i, i+1)
	}
	return names, free
}

func is(d ovirt.HostDevice, w infrav1.NovaZVirtPCIDevice) bool {
	return hardwareID(d.Vendor) == w.VendorID && hardwareID(d.Product) == w.DeviceID
}

// hardwareID reads an ID such as 0x10de.
func hardwareID(o *ovirt.Object) int32 {
	if o == nil {
		return 0
	}
	id, err := strconv.ParseInt(o.ID, 0, 32)
	if err != nil {
		return 0
	}
	return int32(id)
}

// kinds lists kinds of devices as lspci writes them.
func kinds(devices []infrav1.NovaZVirtPCIDevice) string {
	out := make([]string, 0, len(devices))
	for _, d := range devices {
		out = append(out, fmt.Sprintf("%04x:%04x", d.VendorID, d.DeviceID))
	}
	return strings.Join(out, ", ")
}

// hostDevices adds the host devices that were chosen when the VM was created.
func hostDevices(vm *ovirt.VM, want Devices) *Step {
	var have []ovirt.HostDevice
	if vm.HostDevices != nil {
		have = vm.HostDevices.Devices
	}
	for _, name := range want.Names {
		if slices.ContainsFunc(have, func(d ovirt.HostDevice) bool { return d.Name == name && !d.Placeholder }) {
			continue
		}
		return &Step{
			What: fmt.Sprintf("Adding the host device %s", name),
			Request: ovirt.Request{
				Method: http.MethodPost, Path: []string{"vms", vm.ID, "hostdevices"}, Body: ovirt.HostDevice{Name: name},
			},
			Then: func(vm *ovirt.VM) {
				all := slices.DeleteFunc(slices.Clone(have), func(d ovirt.HostDevice) bool { return d.Name == name })
				vm.HostDevices = &ovirt.HostDevices{Devices: append(all, ovirt.HostDevice{Name: name})}
			},
		}
	}
	return nil
}
