package vcenter

import (
	"crypto/rand"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// First bytes of the UUIDs vCenter makes.
const (
	biosUUIDMark     = 0x42
	instanceUUIDMark = 0x50
)

// newUUID makes a random UUID with the given first byte, if it is not zero.
func newUUID(mark byte) string {
	var id uuid.UUID
	_, _ = rand.Read(id[:])
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	if mark != 0 {
		id[0] = mark
	}
	return id.String()
}

// CloneVMTask clones a VM. The clone appears, powered off, once the method's
// delay is over; powering it on is part of the task, as in vCenter.
func (o *operations) CloneVMTask(ctx *simulator.Context, req *types.CloneVM_Task) soap.HasFault {
	body := &methods.CloneVM_TaskBody{}
	source, ok := ctx.Map.Get(req.This).(*simulator.VirtualMachine)
	if !ok {
		body.Fault_ = soapFault(notFound(req.This))
		return body
	}
	if _, ok := ctx.Map.Get(req.Folder).(*simulator.Folder); !ok {
		body.Fault_ = soapFault(notFound(req.Folder))
		return body
	}
	c := &clone{s: o.s, source: source, req: req}
	body.Res = &types.CloneVM_TaskResponse{Returnval: o.s.startTask(ctx, work{
		method:        methodClone,
		descriptionID: taskDescription(methodClone),
		vm:            source,
		shared:        true,
		slots:         c.place(ctx),
		check:         c.check,
		run:           c.run,
	})}
	return body
}

type clone struct {
	s      *Server
	source *simulator.VirtualMachine
	req    *types.CloneVM_Task
	// host is where the clone is made; beside its source, if it is nil.
	host *ref
}

// check rejects requests whose failure can be detected before an object is
// created.
func (c *clone) check(ctx *simulator.Context) *failure {
	folder, ok := ctx.Map.Get(c.req.Folder).(*simulator.Folder)
	if !ok {
		return fail(notFound(c.req.Folder))
	}
	if ctx.Map.Get(c.req.This) == nil {
		return fail(notFound(c.req.This))
	}
	if existing := ctx.Map.FindByName(c.req.Name, folder.ChildEntity); existing != nil {
		return fail(&types.DuplicateName{Name: c.req.Name, Object: existing.Reference()})
	}
	location := &c.req.Spec.Location
	if location.Pool == nil && c.source.Config.Template {
		return fail(&types.InvalidArgument{InvalidProperty: "spec.location.pool"})
	}
	for _, ref := range []*types.ManagedObjectReference{location.Pool, location.Datastore, location.Host} {
		if ref != nil && ctx.Map.Get(*ref) == nil {
			return fail(notFound(*ref))
		}
	}
	if location.Host != nil && c.s.fullHosts[*location.Host] {
		return fail(&types.InsufficientMemoryResourcesFault{})
	}
	if refused := c.checkLink(ctx); refused != nil {
		return refused
	}
	if refused := checkDevices(ctx, c.changes()); refused != nil {
		return refused
	}
	return c.checkSpace(ctx)
}

// linked reports whether the clone shares its source's disks.
func (c *clone) linked() bool {
	return c.req.Spec.Location.DiskMoveType == string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
}

// checkLink refuses snapshots that are not the source's, and disks that are
// shared without a snapshot, or are to grow although they are shared.
func (c *clone) checkLink(ctx *simulator.Context) *failure {
	if snapshot := c.req.Spec.Snapshot; snapshot != nil {
		found, ok := ctx.Map.Get(*snapshot).(*simulator.VirtualMachineSnapshot)
		if !ok || found.Vm != c.source.Self {
			return fail(notFound(*snapshot))
		}
	}
	if !c.linked() {
		return nil
	}
	if c.req.Spec.Snapshot == nil {
		return fail(&types.InvalidArgument{InvalidProperty: "spec.location.diskMoveType"})
	}
	for i, change := range c.changes() {
		spec := change.GetVirtualDeviceConfigSpec()
		if _, ok := spec.Device.(*types.VirtualDisk); ok && spec.Operation == types.VirtualDeviceConfigSpecOperationEdit {
			return fail(&types.InvalidDeviceSpec{
				InvalidVmConfig: types.InvalidVmConfig{Property: fmt.Sprintf("virtualDeviceSpec[%d].device.capacityInKB", i)},
				DeviceIndex:     int32(i),
			})
		}
	}
	return nil
}

// link notes which disks of the source those of the clone continue.
func (c *clone) link(ctx *simulator.Context, vm *simulator.VirtualMachine) {
	parents := object.VirtualDeviceList(c.source.Config.Hardware.Device)
	devices := slices.Clone(vm.Config.Hardware.Device)
	for i, device := range devices {
		disk, ok := device.(*types.VirtualDisk)
		parent, shared := parents.FindByKey(device.GetVirtualDevice().Key).(*types.VirtualDisk)
		if !ok || !shared {
			continue
		}
		from, ok := parent.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
		own, flat := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
		if !ok || !flat {
			continue
		}
		child, backing := *disk, *own
		backing.Parent = from
		child.Backing = &backing
		devices[i] = &child
	}
	ctx.Update(vm, []types.PropertyChange{{Name: "config.hardware.device", Val: devices}})
}

// changes are the changes of devices, whichever part of the spec names them.
func (c *clone) changes() []types.BaseVirtualDeviceConfigSpec {
	changes := c.req.Spec.Location.DeviceChange
	if config := c.req.Spec.Config; config != nil {
		changes = append(slices.Clip(changes), config.DeviceChange...)
	}
	return changes
}

func (c *clone) checkSpace(ctx *simulator.Context) *failure {
	ref := c.datastore()
	ds, ok := ctx.Map.Get(ref).(*simulator.Datastore)
	if !ok {
		return fail(notFound(ref))
	}
	size := map[int32]int64{}
	for _, device := range c.source.Config.Hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok {
			size[disk.Key] = disk.CapacityInKB
		}
	}
	for _, change := range c.changes() {
		spec := change.GetVirtualDeviceConfigSpec()
		if disk, ok := spec.Device.(*types.VirtualDisk); ok && spec.Operation != types.VirtualDeviceConfigSpecOperationRemove {
			size[disk.Key] = max(disk.CapacityInKB, disk.CapacityInBytes>>10)
		}
	}
	need := int64(0)
	for _, kib := range size {
		need += kib << 10
	}
	if need > ds.Summary.FreeSpace {
		return fail(&types.NoDiskSpace{Datastore: ds.Name})
	}
	return nil
}

func (c *clone) run(task types.ManagedObjectReference) (types.AnyType, *failure) {
	var vm *simulator.VirtualMachine
	var refused *failure
	c.s.locked(func(ctx *simulator.Context) {
		// Another clone may have taken the name or the space meanwhile.
		if refused = c.check(ctx); refused == nil {
			vm, refused = c.make(ctx)
		}
		if refused == nil && c.req.Spec.PowerOn && !c.req.Spec.Template {
			c.s.busy[vm.Self.Value] = task.Value
		}
	})
	if refused != nil || !c.req.Spec.PowerOn || c.req.Spec.Template {
		if vm == nil {
			return nil, refused
		}
		return vm.Self, refused
	}
	defer c.s.locked(func(*simulator.Context) { delete(c.s.busy, vm.Self.Value) })
	if !c.s.sleep(c.s.delays.of(methodPowerOn)) {
		return nil, fail(&types.RequestCanceled{})
	}
	if refused := c.s.powerOn(vm); refused != nil {
		return nil, refused
	}
	return vm.Self, nil
}

// make creates the clone. The simulator copies the hardware. The settings of
// the spec are applied to the copy, and the copy is removed if that fails.
func (c *clone) make(ctx *simulator.Context) (*simulator.VirtualMachine, *failure) {
	location := c.req.Spec.Location
	location.DeviceChange, location.Disk, location.DiskMoveType = nil, nil, ""
	if location.Host = c.host; location.Host != nil && !isUsable(ctx, *location.Host) {
		location.Host = c.s.pickHost(ctx, location.Pool)
	}
	vm, refused := c.s.copy(ctx, c.source, c.req.Folder, c.req.Name, location)
	if refused != nil {
		return nil, refused
	}
	if refused := c.s.reconfigure(ctx, vm, c.config(ctx, vm)); refused != nil {
		_ = c.s.remove(ctx, vm)
		return nil, refused
	}
	hideClone(ctx, vm.Self)
	// The simulator does not clone the properties of an OVA.
	if config := c.req.Spec.Config; config == nil || config.VAppConfigRemoved == nil || !*config.VAppConfigRemoved {
		vm.Config.VAppConfig = c.source.Config.VAppConfig
	}
	if c.linked() {
		c.link(ctx, vm)
	}
	c.s.assignMACs(ctx, vm, true)
	setPower(ctx, vm, poweredOff)
	if c.req.Spec.Template {
		vm.MarkAsTemplate(&types.MarkAsTemplate{This: vm.Self})
	}
	c.s.watch.touch(vm.Self)
	return vm, nil
}

// copy makes a VM with the hardware of source, by the simulator's own clone.
func (s *Server) copy(ctx *simulator.Context, source *simulator.VirtualMachine, folder types.ManagedObjectReference, name string,
	location types.VirtualMachineRelocateSpec,
) (*simulator.VirtualMachine, *failure) {
	making.Lock()
	defer making.Unlock()
	renewDefaultDevices()
	result, refused := s.inner(ctx, func() types.ManagedObjectReference {
		res := source.CloneVMTask(ctx, &types.CloneVM_Task{
			This: source.Self, Folder: folder, Name: name,
			Spec: types.VirtualMachineCloneSpec{Location: location},
		})
		return res.(*methods.CloneVM_TaskBody).Res.Returnval
	})
	if refused != nil {
		return nil, refused
	}
	return ctx.Map.Get(result.(types.ManagedObjectReference)).(*simulator.VirtualMachine), nil
}

// config is everything the clone's configuration differs in from the copy the
// simulator makes.
func (c *clone) config(ctx *simulator.Context, vm *simulator.VirtualMachine) types.VirtualMachineConfigSpec {
	var spec types.VirtualMachineConfigSpec
	if c.req.Spec.Config != nil {
		spec = *c.req.Spec.Config
	}
	spec.Name = ""
	spec.Files = nil
	spec.DeviceChange = c.changes()
	setDefault(&spec.Uuid, newUUID(biosUUIDMark))
	setDefault(&spec.Annotation, c.source.Config.Annotation)
	// An instance UUID is vCenter's own to keep unique: one in use is replaced.
	if spec.InstanceUuid == "" || instanceUUIDTaken(ctx, spec.InstanceUuid, vm) {
		spec.InstanceUuid = newUUID(instanceUUIDMark)
	}
	var extra []types.BaseOptionValue
	for _, option := range c.source.Config.ExtraConfig {
		extra = append(extra, &types.OptionValue{Key: option.GetOptionValue().Key, Value: option.GetOptionValue().Value})
	}
	spec.ExtraConfig = append(extra, spec.ExtraConfig...)
	setDefault(&spec.SwapPlacement, c.source.Config.SwapPlacement)
	return spec
}

func instanceUUIDTaken(ctx *simulator.Context, id string, except *simulator.VirtualMachine) bool {
	for _, entity := range ctx.Map.All("VirtualMachine") {
		vm, ok := entity.(*simulator.VirtualMachine)
		if ok && vm != except && vm.Config.InstanceUuid == id {
			return true
		}
	}
	return false
}

// pickHost spreads clones over the hosts of the pool's cluster. It returns nil
// if the pool is in no cluster; the clone then stays beside its source.
func (s *Server) pickHost(ctx *simulator.Context, pool *types.ManagedObjectReference) *types.ManagedObjectReference {
	if pool == nil {
		return nil
	}
	for _, entity := range ctx.Map.All("ClusterComputeResource") {
		cluster, ok := entity.(*simulator.ClusterComputeResource)
		if !ok || !holdsPool(ctx, cluster.ResourcePool, *pool) {
			continue
		}
		if hosts := usableHosts(ctx, cluster); len(hosts) > 0 {
			return &hosts[int(s.hosts.Add(1))%len(hosts)].Self
		}
	}
	return nil
}

func holdsPool(ctx *simulator.Context, root *types.ManagedObjectReference, pool types.ManagedObjectReference) bool {
	if root == nil || *root == pool {
		return root != nil
	}
	parent, ok := ctx.Map.Get(*root).(*simulator.ResourcePool)
	if !ok {
		return false
	}
	for _, child := range parent.ResourcePool.ResourcePool {
		if holdsPool(ctx, &child, pool) {
			return true
		}
	}
	return false
}

// checkDevices refuses cards on networks that do not exist: the simulator
// itself would not survive them.
func checkDevices(ctx *simulator.Context, changes []types.BaseVirtualDeviceConfigSpec) *failure {
	for i, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		if spec.Device == nil {
			return fail(&types.InvalidDeviceSpec{DeviceIndex: int32(i)})
		}
		card, ok := spec.Device.(types.BaseVirtualEthernetCard)
		if !ok || spec.Operation == types.VirtualDeviceConfigSpecOperationRemove {
			continue
		}
		if networkName(ctx, card.GetVirtualEthernetCard()) == "" || !hasNetwork(ctx, card.GetVirtualEthernetCard()) {
			return fail(&types.InvalidDeviceSpec{
				InvalidVmConfig: types.InvalidVmConfig{Property: fmt.Sprintf("virtualDeviceSpec[%d].device.backing", i)},
				DeviceIndex:     int32(i),
			})
		}
	}
	return nil
}

func hasNetwork(ctx *simulator.Context, card *types.VirtualEthernetCard) bool {
	backing, ok := card.Backing.(*types.VirtualEthernetCardNetworkBackingInfo)
	if !ok {
		return true // a port group was found by key already
	}
	for _, entity := range ctx.Map.All("Network") {
		if entity.Entity().Name == backing.DeviceName || entityName(entity) == backing.DeviceName {
			return true
		}
	}
	return false
}

// fitDevices refuses changes of devices that the VM does not have, or has as
// devices of another type. Edited disks keep the file the VM has: a clone spec
// names devices of its source, whose files it must not touch.
func fitDevices(vm *simulator.VirtualMachine, changes []types.BaseVirtualDeviceConfigSpec) *failure {
	devices := object.VirtualDeviceList(vm.Config.Hardware.Device)
	for i, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		if spec.Operation == types.VirtualDeviceConfigSpecOperationAdd || spec.Operation == "" {
			continue
		}
		current := devices.FindByKey(spec.Device.GetVirtualDevice().Key)
		if current == nil || reflect.TypeOf(current) != reflect.TypeOf(spec.Device) {
			return fail(&types.InvalidDeviceSpec{
				InvalidVmConfig: types.InvalidVmConfig{Property: fmt.Sprintf("virtualDeviceSpec[%d].device.key", i)},
				DeviceIndex:     int32(i),
			})
		}
		if spec.Operation == types.VirtualDeviceConfigSpecOperationRemove {
			spec.Device = current
			continue
		}
		disk, wanted := spec.Device.(*types.VirtualDisk)
		if own, ok := current.(*types.VirtualDisk); ok && wanted {
			fitDisk(disk, own)
		}
	}
	return nil
}

// fitDisk fits an edited disk to the one the VM has. Either unit may say the
// new size; the simulator wants both.
func fitDisk(disk, own *types.VirtualDisk) {
	disk.Backing = own.Backing
	if disk.CapacityInBytes == 0 || disk.CapacityInBytes == own.CapacityInBytes {
		disk.CapacityInBytes = disk.CapacityInKB << 10
	}
	disk.CapacityInKB = disk.CapacityInBytes >> 10
}

// assignMACs gives cards addresses of vCenter's range, 00:50:56:80:00:00 to
// 00:50:56:bf:ff:ff. The simulator copies those of the source and makes others
// that may collide. Addresses set by hand stay.
func (s *Server) assignMACs(ctx *simulator.Context, vm *simulator.VirtualMachine, all bool) {
	for _, card := range ethernetCards(vm) {
		manual := card.AddressType == string(types.VirtualEthernetCardMacTypeManual) && card.MacAddress != ""
		if manual || (!all && !madeBySimulator(card.MacAddress)) {
			continue
		}
		n := s.macs.Add(1)
		card.AddressType = string(types.VirtualEthernetCardMacTypeAssigned)
		card.MacAddress = fmt.Sprintf("00:50:56:%02x:%02x:%02x", 0x80|byte(n>>16)&0x3f, byte(n>>8), byte(n))
	}
	ctx.Update(vm, []types.PropertyChange{{Name: "config.hardware.device", Val: vm.Config.Hardware.Device}})
}

func madeBySimulator(mac string) bool {
	return mac == "" || len(mac) > 8 && mac[:8] == "00:0c:29"
}
