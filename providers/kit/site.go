package kit

import (
	"fmt"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// SameSite returns an error unless the connected hypervisor is the one that the
// cluster was first created on. Either ID may be unknown.
func SameSite(home, answers string) error {
	if home == "" || answers == "" || home == answers {
		return nil
	}
	return &hypervisor.Error{
		Reason: infrav1.HypervisorChangedReason,
		Err: fmt.Errorf("the hypervisor that answers has the ID %q, but the cluster belongs to the one with the ID %q: "+
			"point the cluster back to that; if its VMs were taken to the other one, remove the annotation %s",
			answers, home, infrav1.HypervisorIDAnnotation),
	}
}

// EndpointReplaced returns the Error for a driver whose session was opened again
// with another hypervisor at the same address. A new driver has its ID.
func EndpointReplaced(server string) error {
	return &hypervisor.Error{
		Reason: infrav1.EndpointUnreachableReason, Transient: true,
		Err: fmt.Errorf("another hypervisor responds at the address %s since this reconcile began", server),
	}
}
