package machine

import (
	"context"
	"net/netip"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Bounds of the lookups of endpoints' names.
const (
	// lookupTimeout is the longest time that a reconcile waits for a DNS server.
	lookupTimeout = time.Second
	// lookupFresh is how long the result of a lookup is used, also a failed one.
	lookupFresh = time.Minute
	// maxLookups is the maximum number of names whose results are kept.
	maxLookups = 4096
	// maxResolved is the maximum number of addresses of a name.
	maxResolved = 64
)

// Resolver looks names up in DNS. A net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// lookups keeps the addresses of names.
type lookups struct {
	reconcile.Memory[string, lookup]
}

type lookup struct {
	addresses []netip.Addr
	at        time.Time
}

// withoutEndpoint returns the addresses of a VM without those that an endpoint
// given by DNS name adds to one of the machines: such an address moves to another
// machine. The drivers drop the address of an endpoint that is given by address.
func (r addresser[M]) withoutEndpoint(ctx context.Context, s *scope[M], vm *hypervisor.VM, assigned []netip.Addr) []clusterv1.MachineAddress {
	added := addedAddresses(vm.NICs, assigned)
	if s.cluster == nil || len(added) == 0 {
		return vm.Addresses
	}
	host := s.cluster.Spec.ControlPlaneEndpoint.Host
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return vm.Addresses
	}
	resolved := r.lookups.resolve(ctx, r.resolver, host, time.Now())
	return slices.DeleteFunc(slices.Clone(vm.Addresses), func(a clusterv1.MachineAddress) bool {
		address, err := netip.ParseAddr(a.Address)
		address = address.Unmap()
		return err == nil && slices.Contains(added, address) && slices.Contains(resolved, address)
	})
}

// addedAddresses returns the addresses that can have been added to a network interface: those that
// follow another address of the same family and are not assigned to the machine. The first address is
// the machine's own, also if the name of the endpoint resolves to the addresses of all control plane
// machines.
func addedAddresses(nics []hypervisor.NIC, assigned []netip.Addr) []netip.Addr {
	var added []netip.Addr
	for _, nic := range nics {
		has := map[bool]bool{} // by whether the address is IPv4
		for _, address := range nic.Addresses {
			address = address.Unmap()
			if has[address.Is4()] && !slices.Contains(assigned, address) {
				added = append(added, address)
			}
			has[address.Is4()] = true
		}
	}
	return added
}

// resolve returns the addresses of a name. If the lookup fails, it returns the previous result, so
// that a failing DNS server does not change the addresses.
func (l *lookups) resolve(ctx context.Context, resolver Resolver, host string, now time.Time) []netip.Addr {
	if _, known := l.Get(host); !known && l.Len() >= maxLookups {
		l.ForgetIf(func(string, lookup) bool { return true })
	}
	var last lookup
	l.Update(host, func(known *lookup) {
		last = *known
		if now.Sub(last.at) >= lookupFresh {
			known.at = now // other reconciles use the previous result meanwhile
		}
	})
	if now.Sub(last.at) < lookupFresh {
		return last.addresses
	}
	last.at = now

	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("The name of the control plane endpoint cannot be resolved", "host", host, "error", err.Error())
		return last.addresses
	}
	last.addresses = nil
	for _, address := range found[:min(len(found), maxResolved)] {
		last.addresses = append(last.addresses, address.Unmap())
	}
	l.Set(host, last)
	return last.addresses
}
