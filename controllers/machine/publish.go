package machine

import (
	"cmp"
	"fmt"

	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// publish writes the provider ID and the status of a running VM for Cluster API.
func (s *scope[M]) publish() error {
	spec, status := s.infra.Common()
	if spec.ProviderID != "" && spec.ProviderID != s.vm.ProviderID {
		return &hypervisor.Error{
			Reason: infrav1.HypervisorErrorReason,
			Err:    fmt.Errorf("the provider ID of the VM is %q, but the machine has %q: the UUID of the VM was changed", s.vm.ProviderID, spec.ProviderID),
		}
	}
	s.firstProvisioned = spec.ProviderID == ""
	spec.ProviderID = s.vm.ProviderID
	status.Initialization.Provisioned = ptr.To(true)
	status.FailureDomain, status.Addresses = s.vm.Zone, s.vm.Addresses
	if nics := networkInterfaces(s.vm.NICs); len(nics) > 0 {
		status.NetworkInterfaces = nics
	}
	if len(s.vm.Resizable) > 0 {
		status.Resizable = resizable(s.vm.Resizable)
	}
	status.Host = cmp.Or(s.vm.Host, status.Host) // a host that is not known at the moment keeps its last value
	return nil
}

// resizable returns the sizes of a VM for the status.
func resizable(sizes []hypervisor.Resizable) []infrav1.ResizableStatus {
	out := make([]infrav1.ResizableStatus, 0, len(sizes))
	for _, size := range sizes {
		out = append(out, infrav1.ResizableStatus(size))
	}
	return out
}

// networkInterfaces returns the network interfaces of a VM for the status. The guest and the
// hypervisor report them, so each part is bounded.
func networkInterfaces(nics []hypervisor.NIC) []infrav1.NetworkInterfaceStatus {
	const maxMAC, maxNetwork = 64, 1024
	var out []infrav1.NetworkInterfaceStatus
	for _, nic := range nics[:min(len(nics), infrav1.MaxNetworkInterfaces)] {
		status := infrav1.NetworkInterfaceStatus{
			Network: nic.Network[:min(len(nic.Network), maxNetwork)], MACAddress: nic.MAC[:min(len(nic.MAC), maxMAC)],
		}
		for _, a := range nic.Addresses[:min(len(nic.Addresses), infrav1.MaxReportedAddresses)] {
			status.Addresses = append(status.Addresses, a.WithZone("").String())
		}
		out = append(out, status)
	}
	return out
}
