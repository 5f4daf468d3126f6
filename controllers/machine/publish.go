package machine

import (
	"cmp"
	"fmt"

	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// publish hands a VM that is up to Cluster API.
func (s *scope[M]) publish() error {
	spec, status := s.infra.Common()
	if spec.ProviderID != "" && spec.ProviderID != s.vm.ProviderID {
		return &hypervisor.Error{
			Reason: infrav1.HypervisorErrorReason,
			Err:    fmt.Errorf("the VM's provider ID is %q, but the machine is %q: somebody changed the VM's identity", s.vm.ProviderID, spec.ProviderID),
		}
	}
	s.first = spec.ProviderID == ""
	spec.ProviderID = s.vm.ProviderID
	status.Initialization.Provisioned = ptr.To(true)
	status.FailureDomain, status.Addresses = s.vm.Zone, s.vm.Addresses
	status.Host = cmp.Or(s.vm.Host, status.Host) // one that is not known at the moment is no other host
	return nil
}
