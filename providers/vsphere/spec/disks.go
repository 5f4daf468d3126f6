package spec

import (
	"slices"

	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// family is a kind of bus. The controllers of one family are numbered
// together, whatever their type.
type family struct {
	name string
	// units is the number of units of a controller. own is the unit that the
	// controller takes itself; -1 if it takes none.
	units, own int32
}

var (
	scsi = family{name: "scsi", units: 16, own: 7}
	sata = family{name: "sata", units: 30, own: -1}
	nvme = family{name: "nvme", units: 15, own: -1}
	ide  = family{name: "ide", units: 2, own: -1}
)

// families maps the controller types of the API to their families.
var families = map[vspherev1.NovaVSphereControllerType]family{
	vspherev1.ControllerParaVirtual: scsi,
	vspherev1.ControllerLSILogic:    scsi,
	vspherev1.ControllerLSILogicSAS: scsi,
	vspherev1.ControllerBusLogic:    scsi,
	vspherev1.ControllerSATA:        sata,
	vspherev1.ControllerNVMe:        nvme,
}

// diskController is a controller with the units that are in use.
type diskController struct {
	kind      vspherev1.NovaVSphereControllerType
	family    family
	bus       int32
	key       int32
	usedUnits map[int32]bool
	// newDevice is set for a controller that the template does not have.
	newDevice types.BaseVirtualDevice
}

// kindOf returns the controller type of a device, if the device is a disk
// controller.
func kindOf(device types.BaseVirtualDevice) (vspherev1.NovaVSphereControllerType, family, bool) {
	switch device.(type) {
	case *types.ParaVirtualSCSIController:
		return vspherev1.ControllerParaVirtual, scsi, true
	case *types.VirtualLsiLogicController:
		return vspherev1.ControllerLSILogic, scsi, true
	case *types.VirtualLsiLogicSASController:
		return vspherev1.ControllerLSILogicSAS, scsi, true
	case *types.VirtualBusLogicController:
		return vspherev1.ControllerBusLogic, scsi, true
	case *types.VirtualAHCIController, *types.VirtualSATAController:
		return vspherev1.ControllerSATA, sata, true
	case *types.VirtualNVMEController:
		return vspherev1.ControllerNVMe, nvme, true
	case *types.VirtualIDEController:
		return "", ide, true
	}
	return "", family{}, false
}

// newController returns a controller that the template does not have.
func newController(kind vspherev1.NovaVSphereControllerType, bus, key int32) types.BaseVirtualDevice {
	of := types.VirtualController{VirtualDevice: types.VirtualDevice{Key: key}, BusNumber: bus}
	shared := types.VirtualSCSIController{VirtualController: of, SharedBus: types.VirtualSCSISharingNoSharing}
	switch kind {
	case vspherev1.ControllerLSILogic:
		return &types.VirtualLsiLogicController{VirtualSCSIController: shared}
	case vspherev1.ControllerLSILogicSAS:
		return &types.VirtualLsiLogicSASController{VirtualSCSIController: shared}
	case vspherev1.ControllerBusLogic:
		return &types.VirtualBusLogicController{VirtualSCSIController: shared}
	case vspherev1.ControllerSATA:
		return &types.VirtualAHCIController{VirtualSATAController: types.VirtualSATAController{VirtualController: of}}
	case vspherev1.ControllerNVMe:
		return &types.VirtualNVMEController{VirtualController: of}
	case vspherev1.ControllerParaVirtual:
	}
	return &types.ParaVirtualSCSIController{VirtualSCSIController: shared}
}

// DiskDevices has the disk controllers and disks of a VM.
type DiskDevices struct {
	controllers []*diskController
	// Disks are the template's disks, the boot disk first.
	Disks []*types.VirtualDisk
}

// NewDiskDevices reads the devices of a template.
func NewDiskDevices(devices []types.BaseVirtualDevice) *DiskDevices {
	r := &DiskDevices{}
	byKey := map[int32]*diskController{}
	for _, device := range devices {
		controller, ok := device.(types.BaseVirtualController)
		if !ok {
			continue
		}
		kind, of, ok := kindOf(device)
		if !ok {
			continue
		}
		c := controller.GetVirtualController()
		s := &diskController{kind: kind, family: of, bus: c.BusNumber, key: c.Key, usedUnits: map[int32]bool{of.own: true}}
		byKey[c.Key] = s
		r.controllers = append(r.controllers, s)
	}
	for _, device := range devices {
		d := device.GetVirtualDevice()
		s := byKey[d.ControllerKey]
		if s == nil || d.UnitNumber == nil {
			continue
		}
		s.usedUnits[*d.UnitNumber] = true
		if disk, ok := device.(*types.VirtualDisk); ok {
			r.Disks = append(r.Disks, disk)
		}
	}
	return r
}

// bootController returns the controller of the boot disk, if there is one.
func (r *DiskDevices) bootController() *diskController {
	if len(r.Disks) == 0 {
		return nil
	}
	for _, s := range r.controllers {
		if s.key == r.Disks[0].ControllerKey {
			return s
		}
	}
	return nil
}

// findUnit finds a unit for a disk, and adds a controller if that is needed.
func (r *DiskDevices) findUnit(name string, c vspherev1.NovaVSphereController) (*diskController, int32, error) {
	kind, bootController := c.Type, r.bootController()
	if kind == "" {
		kind = vspherev1.ControllerParaVirtual
		if bootController != nil && bootController.kind != "" {
			kind = bootController.kind
		}
	}
	of := families[kind]
	buses := []int32{0, 1, 2, 3} // a VM can have four controllers of a family
	switch {
	case c.Bus != nil:
		buses = []int32{*c.Bus}
	case bootController != nil && bootController.family == of:
		buses = append([]int32{bootController.bus}, buses...)
	}
	for _, bus := range buses {
		s := r.controllerAt(of, bus)
		if s != nil && s.kind != kind {
			if c.Bus != nil {
				return nil, 0, kit.InvalidSpec("the data disk %q requests a controller %s at bus %d, where the template has a controller of the type %s", name, kind, bus, s.kind)
			}
			continue
		}
		if s == nil {
			s = r.addController(kind, of, bus)
		}
		if unit, ok := s.claimUnit(c.Unit); ok {
			return s, unit, nil
		}
		if c.Unit != nil {
			return nil, 0, kit.InvalidSpec("the data disk %q requests unit %d of bus %d, which is in use or does not exist", name, *c.Unit, bus)
		}
	}
	return nil, 0, kit.InvalidSpec("no unit is free for the data disk %q on a controller %s", name, kind)
}

func (r *DiskDevices) controllerAt(of family, bus int32) *diskController {
	for _, s := range r.controllers {
		if s.family == of && s.bus == bus {
			return s
		}
	}
	return nil
}

func (r *DiskDevices) addController(kind vspherev1.NovaVSphereControllerType, of family, bus int32) *diskController {
	key := newControllerKey - int32(len(r.controllers))
	s := &diskController{kind: kind, family: of, bus: bus, key: key, usedUnits: map[int32]bool{of.own: true}, newDevice: newController(kind, bus, key)}
	r.controllers = append(r.controllers, s)
	return s
}

// claimUnit returns a free unit: the wanted one, or any if none is wanted.
func (s *diskController) claimUnit(wanted *int32) (int32, bool) {
	units := s.family.units
	if s.kind == vspherev1.ControllerParaVirtual && wanted != nil {
		units = 64 // as of hardware version 14
	}
	for unit := range units {
		if !s.usedUnits[unit] && (wanted == nil || *wanted == unit) {
			s.usedUnits[unit] = true
			return unit, true
		}
	}
	return 0, false
}

// DiskPlacement is the disk placement of a data disk.
type DiskPlacement struct {
	// Datastore and name are not set if the disk is stored with its VM.
	Datastore *types.ManagedObjectReference
	Name      string
	// Policy is the ID of a storage policy; empty if there is none.
	Policy string
}

// disks returns the device changes for the disks of a clone: it resizes the
// template's disks and adds data disks. placements has one entry for each
// data disk. The slot list has the units of all disks, for disksKey.
func disks(t *Template, d *vspherev1.NovaVSphereDisks, placements []DiskPlacement) (changes []types.BaseVirtualDeviceConfigSpec, slotList string, err error) {
	r := NewDiskDevices(t.devices)
	if changes, err = growDisks(r, d); err != nil {
		return nil, "", err
	}
	all := slices.Clone(t.devices)
	data := make([]types.BaseVirtualDeviceConfigSpec, 0, len(d.Data))
	// Disks that request a unit get it before disks that take any unit.
	for _, withUnit := range []bool{true, false} {
		for i, on := range placements {
			if (d.Data[i].Controller.Unit != nil) != withUnit {
				continue
			}
			change, err := r.addDataDisk(&d.Data[i], on, int32(i))
			if err != nil {
				return nil, "", err
			}
			data = append(data, change)
			all = append(all, change.Device)
		}
	}
	for _, s := range r.controllers {
		if s.newDevice != nil {
			changes = append(changes, add(s.newDevice))
			all = append(all, s.newDevice)
		}
	}
	return append(changes, data...), diskSlots(all), nil
}

// addDataDisk returns the change that adds a data disk.
func (r *DiskDevices) addDataDisk(d *vspherev1.NovaVSphereDataDisk, on DiskPlacement, index int32) (*types.VirtualDeviceConfigSpec, error) {
	s, unit, err := r.findUnit(d.Name, d.Controller)
	if err != nil {
		return nil, err
	}
	backing := &types.VirtualDiskFlatVer2BackingInfo{DiskMode: string(types.VirtualDiskModePersistent)}
	if on.Datastore != nil {
		backing.Datastore, backing.FileName = on.Datastore, "["+on.Name+"]"
	}
	switch d.Provisioning {
	case vspherev1.ProvisioningThin:
		backing.ThinProvisioned = ptr.To(true)
	case vspherev1.ProvisioningThick:
		backing.ThinProvisioned, backing.EagerlyScrub = ptr.To(false), ptr.To(false)
	case vspherev1.ProvisioningEagerZeroed:
		backing.ThinProvisioned, backing.EagerlyScrub = ptr.To(false), ptr.To(true)
	}
	disk := &types.VirtualDisk{
		VirtualDevice:   types.VirtualDevice{Key: newDiskKey - index, ControllerKey: s.key, UnitNumber: ptr.To(unit), Backing: backing},
		CapacityInKB:    d.SizeGiB << 20,
		CapacityInBytes: d.SizeGiB << 30,
	}
	change := add(disk)
	change.FileOperation = types.VirtualDeviceConfigSpecFileOperationCreate
	change.Profile = profile(on.Policy)
	return change, nil
}

// profile returns a storage policy in the form that a request needs.
func profile(policy string) []types.BaseVirtualMachineProfileSpec {
	if policy == "" {
		return nil
	}
	return []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{ProfileId: policy}}
}

// sizes returns the sizes in GiB that are requested for the disks of the
// template, in their order; 0 for disks that are not changed.
func sizes(own []*types.VirtualDisk, d *vspherev1.NovaVSphereDisks) []int64 {
	out := make([]int64, len(own))
	for i, disk := range own {
		if i == 0 {
			out[i] = d.Boot.SizeGiB
			continue
		}
		for _, named := range d.Template {
			if named.Name == LabelOf(disk) {
				out[i] = named.SizeGiB
			}
		}
	}
	return out
}

// LabelOf returns the label that vCenter shows for a disk, such as Hard disk
// 2. The session requests it in English.
func LabelOf(disk *types.VirtualDisk) string {
	if disk.DeviceInfo == nil {
		return ""
	}
	return disk.DeviceInfo.GetDescription().Label
}

// checkDiskNames returns an error if the template does not have a disk that d
// names.
func checkDiskNames(own []*types.VirtualDisk, d *vspherev1.NovaVSphereDisks) error {
	if len(own) == 0 && d.Boot.SizeGiB != 0 {
		return kit.InvalidSpec("disks.boot.sizeGiB is set, but the template has no disk")
	}
	var labels []string
	for i := 1; i < len(own); i++ {
		labels = append(labels, LabelOf(own[i]))
	}
	for _, named := range d.Template {
		if !slices.Contains(labels, named.Name) {
			return kit.InvalidSpec("disks.template: the template has no disk %q beside its boot disk; it has %q", named.Name, labels)
		}
	}
	return nil
}

// growsDisks reports whether a disk of the template gets another size.
func growsDisks(t *Template, d *vspherev1.NovaVSphereDisks) bool {
	own := NewDiskDevices(t.devices).Disks
	for i, size := range sizes(own, d) {
		if size != 0 && size<<30 != capacityOf(own[i]) {
			return true
		}
	}
	return false
}

func capacityOf(disk *types.VirtualDisk) int64 {
	return max(disk.CapacityInBytes, disk.CapacityInKB<<10)
}

// growDisks enlarges the template's disks.
func growDisks(r *DiskDevices, d *vspherev1.NovaVSphereDisks) (changes []types.BaseVirtualDeviceConfigSpec, err error) {
	if err := checkDiskNames(r.Disks, d); err != nil {
		return nil, err
	}
	for i, size := range sizes(r.Disks, d) {
		if size == 0 {
			continue
		}
		own := r.Disks[i]
		switch wanted := size << 30; {
		case wanted < capacityOf(own):
			return nil, kit.InvalidSpec("%d GiB are requested for disk %d of the template, which has %d GiB: a disk can only grow", size, i+1, capacityOf(own)>>30)
		case wanted > capacityOf(own):
			larger := *own
			larger.Backing = withoutParent(own.Backing)
			larger.CapacityInKB, larger.CapacityInBytes = wanted>>10, wanted
			changes = append(changes, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: &larger})
		}
	}
	return changes, nil
}

// withoutParent returns a backing without its chain of snapshots, which a copy
// does not have.
func withoutParent(backing types.BaseVirtualDeviceBackingInfo) types.BaseVirtualDeviceBackingInfo {
	flat, ok := backing.(*types.VirtualDiskFlatVer2BackingInfo)
	if !ok || flat.Parent == nil {
		return backing
	}
	top := *flat
	top.Parent = nil
	return &top
}

// DiskKeys returns the keys of the template's disks.
func DiskKeys(t *Template) []int32 {
	var keys []int32
	for _, disk := range NewDiskDevices(t.devices).Disks {
		keys = append(keys, disk.Key)
	}
	return slices.Clip(keys)
}
