package vcenter

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Guests are the machines of the VMs. Calls for one VM never overlap. A call
// returns when the machine has been started or has ended, not when it has
// booted. An error fails the vCenter task. No call is made with a lock of the
// server held, so each may call the server.
type Guests interface {
	// PowerOn starts the machine.
	PowerOn(ctx context.Context, vm VM) error
	// PowerOff stops the machine. If soft is set, it requests a shutdown of the
	// operating system and returns when that is complete. A machine that is off
	// is not an error.
	PowerOff(ctx context.Context, vm VM, soft bool) error
	// Destroy takes the machine's disk away. It is off.
	Destroy(ctx context.Context, vm VM) error
}

// Reports is how machines talk back. A Guests that has a method
// Attach(Reports) is given it before the server takes its first request.
type Reports interface {
	SetGuestAddresses(id string, nics []GuestNIC) error
	SetGuestHostName(id, name string) error
	SetGuestInfo(id, key, value string) error
	GuestStopped(id string) error
}

// VM is a VM as its machine needs to know it.
type VM struct {
	Name         string `json:"name"`
	Ref          string `json:"ref"`
	BIOSUUID     string `json:"biosUUID"`
	InstanceUUID string `json:"instanceUUID"`
	NICs         []NIC  `json:"nics"`
	CPUs         int    `json:"cpus"`
	MemoryMiB    int    `json:"memoryMiB"`
	// BootDiskGiB is the size of the first disk.
	BootDiskGiB  int64             `json:"bootDiskGiB"`
	DataDisksGiB []int64           `json:"dataDisksGiB,omitempty"`
	ExtraConfig  map[string]string `json:"extraConfig"`
	// OVFEnvironment has the properties of the OVA that it is made from.
	OVFEnvironment string `json:"ovfEnvironment,omitempty"`
	PoweredOn      bool   `json:"poweredOn"`
	Template       bool   `json:"template"`
	IPAddress      string `json:"ipAddress"`
	// Host is the name of the host that it runs on.
	Host string `json:"host"`
}

// NIC is a network card.
type NIC struct {
	MAC     string `json:"mac"`
	Network string `json:"network"`
}

// GuestNIC is a network card as the guest's tools report it.
type GuestNIC struct {
	MAC       string         `json:"mac"`
	Addresses []netip.Prefix `json:"addresses"`
}

// DMISerial is the serial number a VMware VM shows in DMI for its BIOS UUID:
// "VMware-42 37 a1 b2 c3 d4 e5 f6-01 02 03 04 05 06 07 08".
func DMISerial(biosUUID string) string {
	digits := strings.ToLower(strings.ReplaceAll(biosUUID, "-", ""))
	var b strings.Builder
	b.WriteString("VMware-")
	for i := 0; i+1 < len(digits); i += 2 {
		switch i {
		case 0:
		case len(digits) / 2:
			b.WriteByte('-')
		default:
			b.WriteByte(' ')
		}
		b.WriteString(digits[i : i+2])
	}
	return b.String()
}

// SetGuestAddresses reports the addresses of a running guest. The VM is named
// by reference, BIOS UUID or instance UUID. Cards the VM does not have, such
// as a container bridge, are reported too, as VMware's tools do.
func (s *Server) SetGuestAddresses(id string, nics []GuestNIC) error {
	return s.hearGuest(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
		info := make([]types.GuestNicInfo, 0, len(nics))
		first := ""
		for _, nic := range nics {
			entry := guestNicInfo(ctx, vm, nic)
			if first == "" && entry.DeviceConfigId > 0 && len(entry.IpAddress) > 0 {
				first = entry.IpAddress[0]
			}
			info = append(info, entry)
		}
		ctx.Update(vm, append(toolsState(true),
			types.PropertyChange{Name: "guest.net", Val: info},
			types.PropertyChange{Name: "guest.ipAddress", Val: first},
			types.PropertyChange{Name: "summary.guest.ipAddress", Val: first},
		))
	})
}

// SetGuestHostName reports a running guest's own name.
func (s *Server) SetGuestHostName(id, name string) error {
	return s.hearGuest(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
		ctx.Update(vm, append(toolsState(true),
			types.PropertyChange{Name: "guest.hostName", Val: name},
			types.PropertyChange{Name: "summary.guest.hostName", Val: name},
		))
	})
}

// SetGuestInfo stores data of a guest, as the guest does with "info-set".
func (s *Server) SetGuestInfo(id, key, value string) error {
	return s.hearGuest(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
		config := vm.Config.ExtraConfig[:0:0]
		for _, option := range vm.Config.ExtraConfig {
			if option.GetOptionValue().Key != key {
				config = append(config, option)
			}
		}
		if value != "" {
			config = append(config, &types.OptionValue{Key: key, Value: value})
		}
		ctx.Update(vm, []types.PropertyChange{{Name: "config.extraConfig", Val: config}})
	})
}

// GuestStopped reports that a guest powered itself off or died.
func (s *Server) GuestStopped(id string) error {
	return s.changeVM(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
		setPower(ctx, vm, poweredOff)
	})
}

// VMs lists the VMs and templates.
func (s *Server) VMs() []VM {
	var all []VM
	s.locked(func(ctx *simulator.Context) {
		for _, entity := range ctx.Map.All("VirtualMachine") {
			if vm, ok := entity.(*simulator.VirtualMachine); ok {
				all = append(all, describe(ctx, vm))
			}
		}
	})
	return all
}

// hearGuest stores a report of a guest after the delay GuestDelay. The report
// is lost if the guest is off by then.
func (s *Server) hearGuest(id string, change func(*simulator.Context, *simulator.VirtualMachine)) error {
	if s.opts.GuestDelay == 0 {
		return s.changeVM(id, change)
	}
	err := s.changeVM(id, func(*simulator.Context, *simulator.VirtualMachine) {})
	if err != nil {
		return err
	}
	s.wg.Go(func() {
		if !s.sleep(s.opts.GuestDelay) {
			return
		}
		_ = s.changeVM(id, func(ctx *simulator.Context, vm *simulator.VirtualMachine) {
			if vm.Runtime.PowerState == poweredOn {
				change(ctx, vm)
			}
		})
	})
	return nil
}

func (s *Server) changeVM(id string, change func(*simulator.Context, *simulator.VirtualMachine)) error {
	err := fmt.Errorf("no VM %q", id)
	s.locked(func(ctx *simulator.Context) {
		if vm := findVM(ctx, id); vm != nil {
			change(ctx, vm)
			s.watch.touch(vm.Self)
			err = nil
		}
	})
	return err
}

func findVM(ctx *simulator.Context, id string) *simulator.VirtualMachine {
	for _, entity := range ctx.Map.All("VirtualMachine") {
		vm, ok := entity.(*simulator.VirtualMachine)
		if !ok || vm.Config == nil {
			continue
		}
		if vm.Self.Value == id || strings.EqualFold(vm.Config.Uuid, id) || strings.EqualFold(vm.Config.InstanceUuid, id) {
			return vm
		}
	}
	return nil
}

func guestNicInfo(ctx *simulator.Context, vm *simulator.VirtualMachine, nic GuestNIC) types.GuestNicInfo {
	// VMware's tools number cards of the guest alone -1.
	info := types.GuestNicInfo{MacAddress: nic.MAC, Connected: true, DeviceConfigId: -1, IpConfig: &types.NetIpConfigInfo{}}
	for _, card := range ethernetCards(vm) {
		if strings.EqualFold(card.MacAddress, nic.MAC) {
			info.DeviceConfigId = card.Key
			info.Network = networkName(ctx, card)
		}
	}
	for _, prefix := range nic.Addresses {
		info.IpAddress = append(info.IpAddress, prefix.Addr().String())
		info.IpConfig.IpAddress = append(info.IpConfig.IpAddress, types.NetIpConfigInfoIpAddress{
			IpAddress:    prefix.Addr().String(),
			PrefixLength: int32(prefix.Bits()),
			State:        string(types.NetIpConfigInfoIpAddressStatusPreferred),
		})
	}
	return info
}

func describe(ctx *simulator.Context, vm *simulator.VirtualMachine) VM {
	out := VM{
		Name:         vm.Name,
		Ref:          vm.Self.Value,
		BIOSUUID:     vm.Config.Uuid,
		InstanceUUID: vm.Config.InstanceUuid,
		CPUs:         int(vm.Config.Hardware.NumCPU),
		MemoryMiB:    int(vm.Config.Hardware.MemoryMB),
		ExtraConfig:  map[string]string{},
		PoweredOn:    vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn,
		Template:     vm.Config.Template,
		IPAddress:    vm.Guest.IpAddress,
	}
	out.OVFEnvironment = ovfEnvironment(vm.Config.VAppConfig)
	if vm.Runtime.Host != nil {
		if host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
			out.Host = host.Name
		}
	}
	for _, card := range ethernetCards(vm) {
		out.NICs = append(out.NICs, NIC{MAC: card.MacAddress, Network: networkName(ctx, card)})
	}
	disks := object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
	for i, disk := range disks {
		size := disk.(*types.VirtualDisk).CapacityInKB >> 20
		if i == 0 { // the template's
			out.BootDiskGiB = size
		} else {
			out.DataDisksGiB = append(out.DataDisksGiB, size)
		}
	}
	for _, option := range vm.Config.ExtraConfig {
		value := option.GetOptionValue()
		out.ExtraConfig[value.Key] = fmt.Sprint(value.Value)
	}
	return out
}

func ethernetCards(vm *simulator.VirtualMachine) []*types.VirtualEthernetCard {
	var cards []*types.VirtualEthernetCard
	for _, device := range vm.Config.Hardware.Device {
		if card, ok := device.(types.BaseVirtualEthernetCard); ok {
			cards = append(cards, card.GetVirtualEthernetCard())
		}
	}
	return cards
}

func networkName(ctx *simulator.Context, card *types.VirtualEthernetCard) string {
	switch backing := card.Backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		return backing.DeviceName
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		ref := types.ManagedObjectReference{Type: "DistributedVirtualPortgroup", Value: backing.Port.PortgroupKey}
		if group, ok := ctx.Map.Get(ref).(*simulator.DistributedVirtualPortgroup); ok {
			return group.Name
		}
	case *types.VirtualEthernetCardOpaqueNetworkBackingInfo:
		for _, entity := range ctx.Map.All("OpaqueNetwork") {
			network, ok := entity.(*mo.OpaqueNetwork)
			if !ok {
				continue
			}
			if summary, ok := network.Summary.(*types.OpaqueNetworkSummary); ok && summary.OpaqueNetworkId == backing.OpaqueNetworkId {
				return network.Name
			}
		}
	}
	return ""
}

func toolsState(running bool) []types.PropertyChange {
	state := types.VirtualMachineToolsRunningStatusGuestToolsNotRunning
	status := types.VirtualMachineToolsStatusToolsNotRunning
	if running {
		state = types.VirtualMachineToolsRunningStatusGuestToolsRunning
		status = types.VirtualMachineToolsStatusToolsOk
	}
	return []types.PropertyChange{
		{Name: "guest.toolsRunningStatus", Val: string(state)},
		{Name: "guest.toolsStatus", Val: status},
		{Name: "summary.guest.toolsRunningStatus", Val: string(state)},
	}
}
