package vcenter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func (b *bench) addresses(vm *object.VirtualMachine, prefix string) []vcenter.GuestNIC {
	devices, err := vm.Device(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	card := devices.SelectByType((*types.VirtualEthernetCard)(nil))[0].(types.BaseVirtualEthernetCard)
	return []vcenter.GuestNIC{{
		MAC: card.GetVirtualEthernetCard().MacAddress, Addresses: []netip.Prefix{netip.MustParsePrefix(prefix)},
	}}
}

func extraConfig(vm mo.VirtualMachine) map[string]any {
	out := map[string]any{}
	for _, option := range vm.Config.ExtraConfig {
		out[option.GetOptionValue().Key] = option.GetOptionValue().Value
	}
	return out
}

func TestCloneAppliesItsSpec(t *testing.T) {
	b := start(t, vcenter.Options{Inventory: vcenter.Inventory{
		Templates: []vcenter.Template{{Name: vcenter.DefaultTemplate, ExtraConfig: map[string]string{"from": "template", "gone": "soon"}}},
	}})
	group, err := b.finder.Network(b.ctx, "DC0_DVPG0")
	b.Expect(err).NotTo(HaveOccurred())
	backing, err := group.EthernetCardBackingInfo(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	devices, err := b.template().Device(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	disk := devices.SelectByType((*types.VirtualDisk)(nil))[0].(*types.VirtualDisk)
	disk.CapacityInKB = 40 << 20
	disk.CapacityInBytes = 0
	card := devices.SelectByType((*types.VirtualEthernetCard)(nil))[0]

	spec := b.cloneSpec()
	spec.PowerOn = true
	spec.Config = &types.VirtualMachineConfigSpec{
		NumCPUs: 4, MemoryMB: 8192, Annotation: "ours",
		InstanceUuid: "50000000-0000-4000-8000-000000000002", Uuid: "42000000-0000-4000-8000-000000000002",
		ExtraConfig: []types.BaseOptionValue{
			&types.OptionValue{Key: "guestinfo.userdata", Value: "I2Nsb3Vk"},
			&types.OptionValue{Key: "gone", Value: ""},
			&types.OptionValue{Key: "never.was", Value: ""},
		},
		DeviceChange: []types.BaseVirtualDeviceConfigSpec{
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: disk},
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: card},
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: &types.VirtualVmxnet3{
				VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: types.VirtualEthernetCard{
					VirtualDevice: types.VirtualDevice{Key: -1, Backing: backing},
				}},
			}},
		},
	}
	vm := b.clone("full", spec)
	got := b.read(vm)
	b.Expect(got.Config.Hardware.NumCPU).To(BeEquivalentTo(4))
	b.Expect(got.Config.Hardware.MemoryMB).To(BeEquivalentTo(8192))
	b.Expect(got.Config.Annotation).To(Equal("ours"))
	b.Expect(got.Config.InstanceUuid).To(Equal(spec.Config.InstanceUuid))
	b.Expect(got.Config.Uuid).To(Equal(spec.Config.Uuid))
	b.Expect(got.Runtime.PowerState).To(Equal(types.VirtualMachinePowerStatePoweredOn))
	b.Expect(extraConfig(got)).To(HaveKeyWithValue("guestinfo.userdata", "I2Nsb3Vk"))
	b.Expect(extraConfig(got)).To(HaveKeyWithValue("from", "template"))
	b.Expect(extraConfig(got)).NotTo(HaveKey("gone"))
	b.Expect(extraConfig(got)).NotTo(HaveKey("never.was"))

	after := object.VirtualDeviceList(got.Config.Hardware.Device)
	disks := after.SelectByType((*types.VirtualDisk)(nil))
	b.Expect(disks).To(HaveLen(1))
	b.Expect(disks[0].(*types.VirtualDisk).CapacityInKB).To(BeEquivalentTo(40 << 20))
	file := disks[0].GetVirtualDevice().Backing.(types.BaseVirtualDeviceFileBackingInfo).GetVirtualDeviceFileBackingInfo().FileName
	b.Expect(file).To(HavePrefix("[LocalDS_1] full/"))
	cards := after.SelectByType((*types.VirtualEthernetCard)(nil))
	b.Expect(cards).To(HaveLen(1))
	b.Expect(got.Network).To(ConsistOf(group.Reference()))
	b.Expect(b.vmInfo("full").NICs).To(HaveLen(1))
	b.Expect(b.vmInfo("full").NICs[0].Network).To(Equal("DC0_DVPG0"))
}

func (b *bench) vmInfo(name string) vcenter.VM {
	for _, vm := range b.server.VMs() {
		if vm.Name == name {
			return vm
		}
	}
	b.Fail("no VM " + name)
	return vcenter.VM{}
}

func (b *bench) Fail(message string) { b.Expect(message).To(BeEmpty()) }

func TestClonesAreDistinct(t *testing.T) {
	b := start(t, vcenter.Options{})
	ids := map[string]string{}
	for _, name := range []string{"one", "two"} {
		b.clone(name, b.cloneSpec())
	}
	for _, vm := range b.server.VMs() {
		for _, id := range []string{vm.BIOSUUID, vm.InstanceUUID, vm.NICs[0].MAC} {
			b.Expect(ids).NotTo(HaveKey(id))
			ids[id] = vm.Name
		}
		b.Expect(vm.NICs[0].MAC).To(MatchRegexp("^00:50:56:[89ab]"))
		b.Expect(vm.NICs[0].Network).To(Equal("VM Network"))
	}
	b.Expect(ids).To(HaveLen(9))

	// Another VM with the same name, created after the first was deleted, is a
	// different VM.
	before := b.vmInfo("one").BIOSUUID
	old, err := b.finder.VirtualMachine(b.ctx, "/DC0/vm/nova/one")
	b.Expect(err).NotTo(HaveOccurred())
	b.done(old.Destroy(b.ctx))
	b.clone("one", b.cloneSpec())
	b.Expect(b.vmInfo("one").BIOSUUID).NotTo(Equal(before))
}

// The simulator's VMs would share their controllers otherwise.
func TestClonesHaveTheirOwnControllers(t *testing.T) {
	b := start(t, vcenter.Options{})
	for _, name := range []string{"one", "two"} {
		spec := b.cloneSpec()
		spec.Config = &types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: &types.VirtualVmxnet3{
				VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: types.VirtualEthernetCard{VirtualDevice: types.VirtualDevice{
					Key: -1,
					Backing: &types.VirtualEthernetCardNetworkBackingInfo{
						VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: "VM Network"},
					},
				}}},
			}},
		}}
		devices := object.VirtualDeviceList(b.read(b.clone(name, spec)).Config.Hardware.Device)
		controllers := devices.SelectByType((*types.VirtualController)(nil))
		b.Expect(controllers).NotTo(BeEmpty())
		for _, controller := range controllers {
			keys := controller.(types.BaseVirtualController).GetVirtualController().Device
			b.Expect(slices.Compact(slices.Sorted(slices.Values(keys)))).To(HaveLen(len(keys)), "%s: %s lists %v", name, devices.Name(controller), keys)
		}
	}
}

func TestInstanceUUIDStaysUnique(t *testing.T) {
	b := start(t, vcenter.Options{})
	spec := b.cloneSpec()
	spec.Config = &types.VirtualMachineConfigSpec{InstanceUuid: "50000000-0000-4000-8000-000000000003"}
	b.clone("one", spec)
	b.clone("two", spec)
	b.Expect(b.vmInfo("one").InstanceUUID).To(Equal(spec.Config.InstanceUuid))
	b.Expect(b.vmInfo("two").InstanceUUID).NotTo(Equal(spec.Config.InstanceUuid))

	index := object.NewSearchIndex(b.client)
	found, err := index.FindByUuid(b.ctx, nil, spec.Config.InstanceUuid, true, types.NewBool(true))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(found.Reference().Value).To(Equal(b.vmInfo("one").Ref))
}

func TestCloneIsRefused(t *testing.T) {
	b := start(t, vcenter.Options{})
	taken := b.clone("taken", b.cloneSpec())

	fault, message := b.failed(b.startClone("taken", b.cloneSpec()))
	b.Expect(fault).To(Equal(&types.DuplicateName{Name: "taken", Object: taken.Reference()}))
	b.Expect(message).To(Equal("The name 'taken' already exists."))

	spec := b.cloneSpec()
	spec.Location.Pool = nil
	fault, _ = b.failed(b.startClone("poolless", spec))
	b.Expect(fault).To(BeAssignableToTypeOf(&types.InvalidArgument{}))

	spec = b.cloneSpec()
	spec.Location.Datastore = &types.ManagedObjectReference{Type: "Datastore", Value: "datastore-none"}
	fault, _ = b.failed(b.startClone("storeless", spec))
	b.Expect(fault).To(BeAssignableToTypeOf(&types.ManagedObjectNotFound{}))

	spec = b.cloneSpec()
	spec.Config = &types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: &types.VirtualVmxnet3{
			VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: types.VirtualEthernetCard{VirtualDevice: types.VirtualDevice{
				Key: -1, Backing: &types.VirtualEthernetCardNetworkBackingInfo{
					VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: "No Such Network"},
				},
			}}},
		}},
	}}
	fault, _ = b.failed(b.startClone("netless", spec))
	b.Expect(fault).To(BeAssignableToTypeOf(&types.InvalidDeviceSpec{}))

	spec = b.cloneSpec()
	spec.Config = &types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: &types.VirtualDisk{
			VirtualDevice: types.VirtualDevice{Key: 9999},
		}},
	}}
	fault, _ = b.failed(b.startClone("deviceless", spec))
	b.Expect(fault).To(BeAssignableToTypeOf(&types.InvalidDeviceSpec{}))

	b.Expect(b.server.SetDatastoreFull("LocalDS_1", true)).To(Succeed())
	fault, message = b.failed(b.startClone("big", b.cloneSpec()))
	b.Expect(fault).To(Equal(&types.NoDiskSpace{Datastore: "LocalDS_1"}))
	b.Expect(message).To(Equal("Insufficient disk space on datastore 'LocalDS_1'."))
	b.Expect(b.server.SetDatastoreFull("LocalDS_1", false)).To(Succeed())
	b.clone("big", b.cloneSpec())

	b.Expect(b.server.VMs()).To(HaveLen(3), "a refused clone left something behind")
}

func TestPowerStates(t *testing.T) {
	b := start(t, vcenter.Options{})
	vm := b.clone("power", b.cloneSpec())
	b.done(vm.PowerOn(b.ctx))

	task, err := vm.PowerOn(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	fault, message := b.failed(task)
	b.Expect(fault).To(Equal(&types.InvalidPowerState{
		RequestedState: types.VirtualMachinePowerStatePoweredOn, ExistingState: types.VirtualMachinePowerStatePoweredOn,
	}))
	b.Expect(message).To(Equal("The attempted operation cannot be performed in the current state (Powered on)."))

	task, err = vm.Destroy(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	fault, _ = b.failed(task)
	b.Expect(fault).To(BeAssignableToTypeOf(&types.InvalidPowerState{}))

	b.Expect(vm.ShutdownGuest(b.ctx)).To(MatchError(ContainSubstring("Tools is not running")))
	b.Expect(b.server.SetGuestAddresses(vm.Reference().Value, b.addresses(vm, "10.0.0.8/24"))).To(Succeed())
	b.Expect(vm.ShutdownGuest(b.ctx)).To(Succeed())
	b.Eventually(func() bool { return b.vmInfo("power").PoweredOn }).Should(BeFalse())
	got := b.read(vm)
	b.Expect(got.Guest.Net).To(BeEmpty())
	b.Expect(got.Guest.IpAddress).To(BeEmpty())
	b.Expect(got.Guest.ToolsRunningStatus).To(Equal(string(types.VirtualMachineToolsRunningStatusGuestToolsNotRunning)))

	task, err = vm.PowerOff(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	fault, _ = b.failed(task)
	b.Expect(fault).To(BeAssignableToTypeOf(&types.InvalidPowerState{}))
	b.done(vm.Destroy(b.ctx))
	_, err = vm.PowerOn(b.ctx)
	b.Expect(err).To(MatchError(ContainSubstring("already been deleted")))
}

func TestOneTaskAtATimeOnAVM(t *testing.T) {
	b := start(t, vcenter.Options{})
	vm := b.clone("busy", b.cloneSpec())
	b.server.SetTaskDelay("PowerOnVM_Task", 200*time.Millisecond)
	first, err := vm.PowerOn(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	second, err := vm.Destroy(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	fault, _ := b.failed(second)
	b.Expect(fault).To(Equal(&types.TaskInProgress{Task: first.Reference()}))
	b.Expect(first.Wait(b.ctx)).To(Succeed())
}

func TestGuestReports(t *testing.T) {
	b := start(t, vcenter.Options{})
	vm := b.clone("guest", b.cloneSpec())
	b.done(vm.PowerOn(b.ctx))
	uuid := b.vmInfo("guest").BIOSUUID
	nics := append(b.addresses(vm, "10.0.0.9/24"), vcenter.GuestNIC{MAC: "02:00:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/24")}})
	b.Expect(b.server.SetGuestAddresses(uuid, nics)).To(Succeed())
	b.Expect(b.server.SetGuestHostName(strings.ToUpper(uuid), "node-1")).To(Succeed())
	b.Expect(b.server.SetGuestInfo(uuid, "guestinfo.local-ipv4", "10.0.0.9")).To(Succeed())
	b.Expect(b.server.SetGuestInfo("nobody", "k", "v")).To(MatchError(ContainSubstring("no VM")))

	got := b.read(vm)
	b.Expect(got.Guest.IpAddress).To(Equal("10.0.0.9"))
	b.Expect(got.Guest.HostName).To(Equal("node-1"))
	b.Expect(got.Guest.ToolsRunningStatus).To(Equal(string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)))
	b.Expect(got.Guest.Net).To(HaveLen(2))
	b.Expect(got.Guest.Net[0].Network).To(Equal("VM Network"))
	b.Expect(got.Guest.Net[0].IpAddress).To(ConsistOf("10.0.0.9"))
	b.Expect(got.Guest.Net[1].DeviceConfigId).To(BeEquivalentTo(-1))
	b.Expect(extraConfig(got)).To(HaveKeyWithValue("guestinfo.local-ipv4", "10.0.0.9"))
}

// recorder is a Guests that records its calls.
type recorder struct {
	mu    sync.Mutex
	calls []string
	fail  error
	last  vcenter.VM
}

func (r *recorder) note(call string, vm vcenter.VM) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call+" "+vm.Name)
	r.last = vm
	return r.fail
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.calls...)
}

func (r *recorder) setFail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *recorder) PowerOn(_ context.Context, vm vcenter.VM) error { return r.note("on", vm) }
func (r *recorder) PowerOff(_ context.Context, vm vcenter.VM, soft bool) error {
	return r.note(fmt.Sprintf("off soft=%t", soft), vm)
}
func (r *recorder) Destroy(_ context.Context, vm vcenter.VM) error     { return r.note("destroy", vm) }
func (r *recorder) Reconfigure(_ context.Context, vm vcenter.VM) error { return r.note("change", vm) }

func TestGuestsFollowTheirVMs(t *testing.T) {
	guests := &recorder{}
	b := start(t, vcenter.Options{Guests: guests})
	spec := b.cloneSpec()
	spec.PowerOn = true
	spec.Config = &types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "guestinfo.userdata", Value: "eA=="}}}
	vm := b.clone("host", spec)
	b.Expect(guests.all()).To(Equal([]string{"on host"}))
	b.Expect(guests.last.ExtraConfig).To(HaveKeyWithValue("guestinfo.userdata", "eA=="))
	b.Expect(guests.last.NICs).To(HaveLen(1))
	b.Expect(guests.last.CPUs).To(Equal(2))

	b.done(vm.Reset(b.ctx))
	b.done(vm.Reconfigure(b.ctx, types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "guestinfo.userdata", Value: ""}}}))
	b.Expect(guests.last.ExtraConfig).NotTo(HaveKey("guestinfo.userdata"))
	b.Expect(b.server.SetGuestHostName(vm.Reference().Value, "host")).To(Succeed())
	b.Expect(vm.RebootGuest(b.ctx)).To(Succeed())
	b.Eventually(guests.all).Should(Equal([]string{
		"on host", "off soft=false host", "on host", "change host", "off soft=true host", "on host",
	}))
	b.done(vm.PowerOff(b.ctx))
	b.done(vm.Destroy(b.ctx))
	b.Expect(guests.all()[6:]).To(Equal([]string{"off soft=false host", "destroy host"}))

	// A machine that does not start fails the power-on and stays off.
	other := b.clone("broken", b.cloneSpec())
	guests.setFail(errors.New("no memory for the machine"))
	task, err := other.PowerOn(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	_, message := b.failed(task)
	b.Expect(message).To(ContainSubstring("no memory for the machine"))
	b.Expect(b.vmInfo("broken").PoweredOn).To(BeFalse())
}

func TestHotAdd(t *testing.T) {
	on, sockets := ptr.To(true), ptr.To(int32(2))
	for name, tc := range map[string]struct {
		config, change types.VirtualMachineConfigSpec
		fault          types.BaseMethodFault
	}{
		"CPUs":           {config: types.VirtualMachineConfigSpec{CpuHotAddEnabled: on}, change: types.VirtualMachineConfigSpec{NumCPUs: 4}},
		"CPUsDisabled":   {change: types.VirtualMachineConfigSpec{NumCPUs: 4}, fault: &types.CpuHotPlugNotSupported{}},
		"FewerCPUs":      {config: types.VirtualMachineConfigSpec{CpuHotAddEnabled: on}, change: types.VirtualMachineConfigSpec{NumCPUs: 1}, fault: &types.CpuHotPlugNotSupported{}},
		"HalfASocket":    {config: types.VirtualMachineConfigSpec{CpuHotAddEnabled: on, NumCoresPerSocket: sockets}, change: types.VirtualMachineConfigSpec{NumCPUs: 3}, fault: &types.InvalidVmConfig{}},
		"Memory":         {config: types.VirtualMachineConfigSpec{MemoryHotAddEnabled: on}, change: types.VirtualMachineConfigSpec{MemoryMB: 3072}},
		"MemoryDisabled": {change: types.VirtualMachineConfigSpec{MemoryMB: 3072}, fault: &types.MemoryHotPlugNotSupported{}},
		"LessMemory":     {config: types.VirtualMachineConfigSpec{MemoryHotAddEnabled: on}, change: types.VirtualMachineConfigSpec{MemoryMB: 1024}, fault: &types.MemoryHotPlugNotSupported{}},
		"NoMultiple":     {config: types.VirtualMachineConfigSpec{MemoryHotAddEnabled: on}, change: types.VirtualMachineConfigSpec{MemoryMB: 2049}, fault: &types.InvalidVmConfig{}},
		"Limit":          {config: types.VirtualMachineConfigSpec{MemoryHotAddEnabled: on}, change: types.VirtualMachineConfigSpec{MemoryMB: 4096}, fault: &types.InvalidVmConfig{}},
		"WhileItRuns":    {change: types.VirtualMachineConfigSpec{CpuHotAddEnabled: on}, fault: &types.InvalidPowerState{}},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, vcenter.Options{})
			spec := b.cloneSpec()
			tc.config.NumCPUs, tc.config.MemoryMB = 2, 2048
			spec.Config, spec.PowerOn = &tc.config, true
			vm := b.clone("vm", spec)
			task, err := vm.Reconfigure(b.ctx, tc.change)
			b.Expect(err).NotTo(HaveOccurred())
			if tc.fault != nil {
				fault, _ := b.failed(task)
				b.Expect(fault).To(BeAssignableToTypeOf(tc.fault))
				tc.change = types.VirtualMachineConfigSpec{}
			} else {
				b.Expect(task.Wait(b.ctx)).To(Succeed())
			}
			now := b.read(vm).Config.Hardware
			b.Expect(now.NumCPU).To(Equal(cmp.Or(tc.change.NumCPUs, 2)))
			b.Expect(int64(now.MemoryMB)).To(Equal(cmp.Or(tc.change.MemoryMB, 2048)))
		})
	}
}

func TestDMISerial(t *testing.T) {
	NewWithT(t).Expect(vcenter.DMISerial("4237A1B2-c3d4-e5f6-0102-030405060708")).
		To(Equal("VMware-42 37 a1 b2 c3 d4 e5 f6-01 02 03 04 05 06 07 08"))
}
