package bed

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// guest is a VM that runs, in a bed without hosts.
type guest struct {
	// vm is its name, id the hypervisor's ID, and mac that of its first interface.
	vm, id, mac string
}

// prefixes is the address of a guest as hypervisors report it.
func prefixes(address netip.Addr) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(address, 24)}
}

func (v vsphere) guests(ctx context.Context) (running []guest, err error) {
	vms, err := v.Control().VMs(ctx)
	for i := range vms {
		if vm := &vms[i]; vm.PoweredOn && len(vm.NICs) > 0 {
			running = append(running, guest{vm: vm.Name, id: vm.Ref, mac: vm.NICs[0].MAC})
		}
	}
	return running, err
}

func (v vsphere) report(ctx context.Context, g guest, address netip.Addr) error {
	return v.Control().SetGuestAddresses(ctx, g.id, []vcenter.GuestNIC{{MAC: g.mac, Addresses: prefixes(address)}})
}

func (z zvirt) guests(ctx context.Context) (running []guest, err error) {
	vms, err := z.Engine().VMs(ctx)
	for i := range vms {
		if vm := &vms[i]; vm.Status == "up" && len(vm.NICs) > 0 {
			running = append(running, guest{vm: vm.Name, id: vm.ID, mac: vm.NICs[0].MAC})
		}
	}
	return running, err
}

func (z zvirt) report(ctx context.Context, g guest, address netip.Addr) error {
	return z.Engine().SetGuestAddresses(ctx, g.id, []ovirtsim.GuestNIC{{Name: "eth0", MAC: g.mac, Addresses: prefixes(address)}})
}

func (p proxmox) guests(ctx context.Context) (running []guest, err error) {
	vms, err := p.Proxmox().VMs(ctx)
	for i := range vms {
		if vm := &vms[i]; vm.Running && len(vm.MACs) > 0 {
			running = append(running, guest{vm: vm.Name, id: vm.Name, mac: vm.MACs[0]})
		}
	}
	return running, err
}

func (p proxmox) report(ctx context.Context, g guest, address netip.Addr) error {
	nic := cluster.GuestNIC{Name: "eth0", MAC: g.mac, Addresses: prefixes(address)}
	if err := p.Proxmox().SetGuest(ctx, g.id, cluster.Guest{NICs: []cluster.GuestNIC{nic}}); err != nil {
		return fmt.Errorf("reporting the address of VM %s: %w", g.vm, err)
	}
	return nil
}
