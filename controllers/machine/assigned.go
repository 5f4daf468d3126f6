package machine

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// ownAddresses returns the reported addresses of a machine without the addresses that the guest has
// added to its interfaces: certificates are issued for the addresses of a Machine.
func (r addresser[M]) ownAddresses(ctx context.Context, s *scope[M], vm *hypervisor.VM) []clusterv1.MachineAddress {
	if len(vm.Addresses) == 0 {
		return nil
	}
	interfaces := s.addressing()
	assigned := append(staticAddresses(interfaces), r.pooledAddresses(ctx, s)...)
	return onlyAssigned(r.withoutEndpoint(ctx, s, vm, assigned), interfaces, assigned)
}

// usesDHCP reports whether an interface gets an IPv4 or an IPv6 address from DHCP, so that not all
// addresses of the family are known here. Routers announce addresses to an interface with dhcp6 too.
func usesDHCP(interfaces []*infrav1.InterfaceAddressing, ipv4 bool) bool {
	if ipv4 {
		return slices.ContainsFunc(interfaces, (*infrav1.InterfaceAddressing).UsesDHCP4)
	}
	return slices.ContainsFunc(interfaces, (*infrav1.InterfaceAddressing).UsesDHCP6)
}

// onlyAssigned drops the addresses that are neither static nor pooled, except
// those of a family that an interface configures with DHCP. It drops none if no address
// is assigned.
func onlyAssigned(reported []clusterv1.MachineAddress, interfaces []*infrav1.InterfaceAddressing, assigned []netip.Addr) []clusterv1.MachineAddress {
	if len(assigned) == 0 {
		return reported
	}
	return slices.DeleteFunc(slices.Clone(reported), func(a clusterv1.MachineAddress) bool {
		address, err := netip.ParseAddr(a.Address)
		address = address.Unmap()
		return err == nil && !slices.Contains(assigned, address) && !usesDHCP(interfaces, address.Is4())
	})
}

func staticAddresses(interfaces []*infrav1.InterfaceAddressing) []netip.Addr {
	var all []netip.Addr
	for _, addressing := range interfaces {
		for _, text := range addressing.Addresses {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				all = append(all, prefix.Addr().Unmap())
			}
		}
	}
	return all
}

// pooledAddresses returns the addresses that the pools gave to the machine. It reads them once and
// stores them in an annotation. While one of them cannot be read, it returns none.
func (r addresser[M]) pooledAddresses(ctx context.Context, s *scope[M]) []netip.Addr {
	var all []netip.Addr
	if text := s.infra.GetAnnotations()[infrav1.AssignedAddressesAnnotation]; text != "" {
		for part := range strings.SplitSeq(text, ",") {
			if address, err := netip.ParseAddr(part); err == nil {
				all = append(all, address)
			}
		}
		return all
	}
	var texts []string
	for nic, addressing := range s.addressing() {
		for i := range addressing.AddressesFromPools {
			claim := &ipamv1.IPAddressClaim{}
			key := client.ObjectKey{Namespace: s.infra.GetNamespace(), Name: claimName(s.infra.GetName(), nic, i)}
			if err := r.Client.Get(ctx, key, claim); err != nil {
				return nil
			}
			address, problem, err := r.address(ctx, claim)
			if err != nil || problem != "" {
				return nil
			}
			all, texts = append(all, address.Prefix.Addr()), append(texts, address.Prefix.Addr().String())
		}
	}
	if len(texts) > 0 {
		annotations.AddAnnotations(s.infra, map[string]string{infrav1.AssignedAddressesAnnotation: strings.Join(texts, ",")})
	}
	return all
}
