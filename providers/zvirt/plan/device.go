package plan

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// Devices are PCI devices of one host by their names, such as pci_0000_04_00_0.
type Devices struct {
	// Host is the ID of the host. It is empty if there are no devices.
	Host  string
	Names []string
}

func (d Devices) String() string {
	if d.Host == "" {
		return ""
	}
	return d.Host + "/" + strings.Join(d.Names, ",")
}

// ReadDevices parses the text that String returns.
func ReadDevices(text string) Devices {
	host, names, ok := strings.Cut(text, "/")
	if !ok {
		return Devices{}
	}
	return Devices{Host: host, Names: strings.Split(names, ",")}
}

// Has reports whether d contains a device.
func (d Devices) Has(host, name string) bool {
	return d.Host == host && slices.Contains(d.Names, name)
}

// ChooseDevices returns devices of the required kinds on the host that has the
// most of them free. The engine chooses neither host nor device: it adds a
// device only to a VM that is pinned to the host of the device, and it checks
// only when it starts the VM whether another VM uses the device. Therefore
// reserved reports the devices of VMs that do not run yet.
func ChooseDevices(h *zvirtv1.NovaZVirtHardware, hosts []ovirt.Host, reserved func(host, name string) bool) (Devices, error) {
	best, most := Devices{}, 0
	for i := range hosts {
		host := &hosts[i]
		if host.Status != "up" || host.MaxSchedulingMemory < h.MemoryMiB<<20 {
			continue
		}
		names, free := pickDevices(h.PCIDevices, host, reserved)
		if names != nil && free > most {
			best, most = Devices{Host: host.ID, Names: names}, free
		}
	}
	if most == 0 {
		return best, hypervisor.Failure(infrav1.InsufficientResourcesReason,
			"hardware.pciDevices: none of the %d allowed hosts is up with enough memory and these devices free: %s", len(hosts), deviceKinds(h.PCIDevices))
	}
	return best, nil
}

// pickDevices returns devices of a host, or nil if the host lacks one of them,
// and the number of its free devices of these kinds.
func pickDevices(want []zvirtv1.NovaZVirtPCIDevice, host *ovirt.Host, reserved func(host, name string) bool) (names []string, free int) {
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
			!slices.ContainsFunc(want, func(w zvirtv1.NovaZVirtPCIDevice) bool { return matches(d, w) })
	})
	free = len(devices)
	for _, w := range want {
		i := slices.IndexFunc(devices, func(d ovirt.HostDevice) bool { return matches(d, w) })
		if i < 0 {
			return nil, free
		}
		names = append(names, devices[i].Name)
		devices = slices.Delete(devices, i, i+1)
	}
	return names, free
}

func matches(d ovirt.HostDevice, w zvirtv1.NovaZVirtPCIDevice) bool {
	return hardwareID(d.Vendor) == w.VendorID && hardwareID(d.Product) == w.DeviceID
}

// hardwareID parses an ID such as 0x10de.
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

// deviceKinds lists kinds of devices in the format of lspci.
func deviceKinds(devices []zvirtv1.NovaZVirtPCIDevice) string {
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
			Description: fmt.Sprintf("Adding the host device %s", name),
			Request: ovirt.Request{
				Method: http.MethodPost, Path: []string{"vms", vm.ID, "hostdevices"}, Body: ovirt.HostDevice{Name: name},
			},
			Apply: func(vm *ovirt.VM) {
				all := slices.DeleteFunc(slices.Clone(have), func(d ovirt.HostDevice) bool { return d.Name == name })
				vm.HostDevices = &ovirt.HostDevices{Devices: append(all, ovirt.HostDevice{Name: name})}
			},
		}
	}
	return nil
}
