package zvirt

import (
	"encoding/xml"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

const (
	nvidia = 0x10de
	tesla  = 0x1eb8
	audio  = 0x10f0
)

// graphicsCards returns the devices of a host with graphics cards, each with an
// audio function in its IOMMU group.
func graphicsCards(names ...string) []ovirtsim.DeviceSpec {
	out := []ovirtsim.DeviceSpec{{Name: "pci_0000_00_1f_0", VendorID: 0x8086, DeviceID: 0x1234, IOMMUGroup: 1}}
	for i, name := range names {
		group := int64(20 + i)
		out = append(out, ovirtsim.DeviceSpec{Name: name + "_0", VendorID: nvidia, DeviceID: tesla, IOMMUGroup: group},
			ovirtsim.DeviceSpec{Name: name + "_1", VendorID: nvidia, DeviceID: audio, IOMMUGroup: group})
	}
	return out
}

func withGraphicsCard(m *zvirtv1.NovaZVirtMachine) {
	m.Spec.Hardware.PCIDevices = []zvirtv1.NovaZVirtPCIDevice{{VendorID: nvidia, DeviceID: tesla}}
}

// devicesOf returns the host that a VM is pinned to and its host devices,
// without the devices that were added because of their IOMMU group.
func (b *bed) devicesOf(name string) (host string, devices []string) {
	b.t.Helper()
	b.Expect(b.vmsNamed(name)).To(HaveLen(1))
	var vm ovirt.VM
	b.Expect(xml.Unmarshal([]byte(b.admin("GET", "/vms/"+b.vmsNamed(name)[0].ID+"?follow=host_devices", "")), &vm)).To(Succeed())
	b.Expect(vm.PlacementPolicy.Affinity).To(Equal("pinned"))
	b.Expect(vm.PlacementPolicy.Hosts.Hosts).To(HaveLen(1))
	for _, d := range vm.HostDevices.Devices {
		if !d.Placeholder {
			devices = append(devices, d.Name)
		}
	}
	return vm.PlacementPolicy.Hosts.Hosts[0].ID, devices
}

func withHosts(o *ovirtsim.Options) {
	o.Inventory.Hosts = []ovirtsim.HostSpec{
		{Name: "host1", Cores: 16, MemoryMiB: 128 << 10},
		{Name: "host2", Cores: 16, MemoryMiB: 1 << 10, Devices: graphicsCards("pci_0000_03_00", "pci_0000_04_00", "pci_0000_05_00")},
		{Name: "gpu1", Cores: 16, MemoryMiB: 64 << 10, Devices: graphicsCards("pci_0000_03_00")},
		{Name: "gpu2", Cores: 16, MemoryMiB: 64 << 10, Devices: graphicsCards("pci_0000_03_00", "pci_0000_04_00")},
	}
}

// The engine does not choose hosts for devices, and it does not detect before a
// start that two VMs have the same device.
func TestHostDevices(t *testing.T) {
	b := newBed(t, withHosts)
	used := map[string][]string{}
	for _, name := range []string{"worker-1", "worker-2"} {
		b.create(name, withGraphicsCard)
		host, devices := b.devicesOf(name)
		used[host] = append(used[host], devices...)
	}
	third := b.create("worker-3", func(m *zvirtv1.NovaZVirtMachine) {
		m.Spec.Hardware.PCIDevices = []zvirtv1.NovaZVirtPCIDevice{{VendorID: nvidia, DeviceID: audio}, {VendorID: nvidia, DeviceID: tesla}}
	})
	host, devices := b.devicesOf("worker-3")
	b.Expect(devices).To(HaveLen(2), "the device that was added with its group is one of the VM's own devices")
	used[host] = append(used[host], devices[0])
	b.Expect(used).To(HaveLen(2))
	for _, devices := range used {
		b.Expect(devices).To(HaveEach(HavePrefix("pci_0000_0")))
	}

	b.Expect(b.expectFailure(b.machine("worker-4", withGraphicsCard), infrav1.InsufficientResourcesReason)).To(MatchError(ContainSubstring("10de:1eb8")))
	b.reconcileUntil(b.connector, markDeleted(third), false, "release")
	b.create("worker-4", withGraphicsCard)
}

// A VM that does not run yet keeps its devices, also when another manager
// chooses devices.
func TestHostDevicesOfStoppedVMs(t *testing.T) {
	b := newBed(t, withHosts)
	only := func(m *zvirtv1.NovaZVirtMachine) {
		withGraphicsCard(m)
		m.Spec.Placement.Hosts = []string{"gpu1"}
	}
	first := b.machine("worker-1", only)
	b.reconcileUntil(b.connector, first, false, "create")
	second := b.machine("worker-2", only)
	b.Expect(b.expectFailure(second, infrav1.InsufficientResourcesReason)).To(HaveOccurred())

	b.connector = b.newConnector()
	b.Eventually(func() []ovirtsim.VM { return b.vmsNamed("worker-1") }).Should(ContainElement(HaveField("Status", "down")))
	b.Expect(b.expectFailure(second, infrav1.InsufficientResourcesReason)).To(HaveOccurred())
	b.reconcileUntil(b.connector, first, true, "rest")
	_, devices := b.devicesOf("worker-1")
	b.Expect(devices).To(ConsistOf("pci_0000_03_00_0"))
}

// The permissions in the guide are sufficient, including the one that it lists
// for the field.
func TestRoleForHostDevices(t *testing.T) {
	b := newBedWithRole(t, func(*ovirtsim.UserSpec) {}, withHosts)
	guide := documentedPermissions(b.WithT)
	b.Expect(b.expectFailure(b.machine("worker-1", withGraphicsCard), infrav1.PermissionDeniedReason)).To(HaveOccurred())
	b.Expect(b.engine.SetPermits(leastUser, append(guide, "edit_admin_vm_properties"))).To(Succeed())
	b.create("worker-1", withGraphicsCard)
	_, devices := b.devicesOf("worker-1")
	b.Expect(devices).To(HaveLen(1))
}

// The connection is lost when the device is added, before or after the engine
// has added it.
func TestHostDeviceWithLostResponse(t *testing.T) {
	b := newBed(t, withHosts)
	b.engine.Inject(ovirtsim.Fault{Method: "POST", Path: "vms/*/hostdevices", Drop: true})
	b.engine.Inject(ovirtsim.Fault{Method: "POST", Path: "vms/*/hostdevices", Drop: true, After: true})
	b.create("worker-1", withGraphicsCard)
	_, devices := b.devicesOf("worker-1")
	b.Expect(devices).To(HaveLen(1))
}

// The engine rejects the start of a VM whose device a running VM uses.
func TestHostDeviceInUse(t *testing.T) {
	b := newBed(t, withHosts)
	m := b.machine("worker-1", withGraphicsCard)
	b.reconcileUntil(b.connector, m, false, "create")
	b.reconcileUntil(b.connector, m, false, "start")
	b.Eventually(func() []ovirtsim.VM { return b.vmsNamed("worker-1") }).Should(ContainElement(HaveField("Status", "up")))
	host, _ := b.devicesOf("worker-1")

	template := b.idOf(b.admin("GET", "/templates?search=name%3D"+templateName, ""))
	foreign := b.idOf(b.admin("POST", "/vms", `<vm><name>foreign</name><cluster><name>Default</name></cluster><template id="`+template+`"/>
		<placement_policy><affinity>pinned</affinity><hosts><host id="`+host+`"/></hosts></placement_policy></vm>`))
	b.Eventually(func() []ovirtsim.VM { return b.vmsNamed("foreign") }).Should(ContainElement(HaveField("Status", "down")))
	for _, device := range []string{"pci_0000_03_00_0", "pci_0000_04_00_0"} {
		b.admin("POST", "/vms/"+foreign+"/hostdevices", "<host_device><name>"+device+"</name></host_device>")
	}
	status, answer := b.engine.Do("POST", "/vms/"+foreign+"/start", "<action/>")
	b.Expect(status).To(Equal(409))
	b.Expect(answer).To(ContainSubstring("some of the required host devices are unavailable"))
}
