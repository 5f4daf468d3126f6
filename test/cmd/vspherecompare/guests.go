package main

import (
	"context"
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// guests stand in for the machines behind VMs: all they do is to report an
// address some time after power-on, as the tools in a guest do.
type guests struct {
	boot    time.Duration
	reports vcenter.Reports
	number  atomic.Uint32
}

// Attach is how guests talk back.
func (g *guests) Attach(reports vcenter.Reports) { g.reports = reports }

// PowerOn boots a guest.
func (g *guests) PowerOn(_ context.Context, vm vcenter.VM) error {
	if len(vm.NICs) == 0 {
		return nil
	}
	nics := []vcenter.GuestNIC{{MAC: vm.NICs[0].MAC, Addresses: []netip.Prefix{netip.PrefixFrom(address(g.number.Add(1)), 8)}}}
	// A VM that is off or gone by then reports nothing that counts.
	time.AfterFunc(g.boot, func() { _ = g.reports.SetGuestAddresses(vm.Ref, nics) })
	return nil
}

// PowerOff does nothing: the VM's state is all there is.
func (*guests) PowerOff(context.Context, vcenter.VM, bool) error { return nil }

// Destroy does nothing: there is no disk.
func (*guests) Destroy(context.Context, vcenter.VM) error { return nil }

// address is the n-th address of 10.0.0.0/8.
func address(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 10<<24+n)
	return netip.AddrFrom4(b)
}
