package machine

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// ownAddresses returns the reported addresses of a machine without those that the
// guest has added to its interfaces: certificates are issued for the addresses of
// a Machine.
func (r *Reconciler[M]) ownAddresses(ctx context.Context, s *scope[M], reported []clusterv1.MachineAddress) []clusterv1.MachineAddress {
	if len(reported) == 0 || usesDHCP4(s.infra.Addressing()) {
		return reported
	}
	return onlyAssigned(reported, append(staticAddresses(s.infra.Addressing()), r.pooledAddresses(ctx, s)...))
}

// usesDHCP4 reports whether an interface asks DHCP for an IPv4 address, so that
// not all of them are known here.
func usesDHCP4(interfaces []*infrav1.InterfaceAddressing) bool {
	return slices.ContainsFunc(interfaces, (*infrav1.InterfaceAddressing).UsesDHCP4)
}

// onlyAssigned drops the IPv4 addresses that are not assigned. IPv6 addresses
// stay, because routers announce some.
func onlyAssigned(reported []clusterv1.MachineAddress, assigned []netip.Addr) []clusterv1.MachineAddress {
	if !slices.ContainsFunc(assigned, netip.Addr.Is4) {
		return reported
	}
	return slices.DeleteFunc(slices.Clone(reported), func(a clusterv1.MachineAddress) bool {
		address, err := netip.ParseAddr(a.Address)
		return err == nil && address.Unmap().Is4() && !slices.Contains(assigned, address.Unmap())
	})
}

func staticAddresses(interfaces []*infrav1.InterfaceAddressing) []netip.Addr {
	var all []netip.Addr
	for _, addressing := range interfaces {
		for _, text := range addressing.Addresses {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				all = append(all, prefix.Addr())
			}
		}
	}
	return all
}

// pooledAddresses returns the addresses that the pools gave to the machine. They
// are read once and kept in an annotation. As long as one cannot be read there
// are none.
func (r *Reconciler[M]) pooledAddresses(ctx context.Context, s *scope[M]) []netip.Addr {
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
	for nic, addressing := range s.infra.Addressing() {
		for i := range addressing.AddressesFromPools {
			claim := &ipamv1.IPAddressClaim{}
			key := client.ObjectKey{Namespace: s.infra.GetNamespace(), Name: claimName(s.infra.GetName(), nic, i)}
			if err := r.Client.Get(ctx, key, claim); err != nil {
				return nil
			}
			address, lack, err := r.address(ctx, claim)
			if err != nil || lack != "" {
				return nil
			}
			all, texts = append(all, address.Prefix.Addr()), append(texts, address.Prefix.Addr().String())
		}
	}
	if len(texts) > 0 {
		annotations := s.infra.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[infrav1.AssignedAddressesAnnotation] = strings.Join(texts, ",")
		s.infra.SetAnnotations(annotations)
	}
	return all
}
