package cluster

import (
	"cmp"
	"context"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// pin binds a cluster to the hypervisor on which it was first seen, for as long as the cluster has
// machines: another hypervisor has none of their VMs, so all would appear to be missing. The pin is an
// annotation, because clusterctl move drops the status. It is the hypervisor's own ID, because a
// server name is not sufficient: two names may resolve to one vCenter, and a name may resolve to
// another vCenter after a change of DNS.
func (r *Reconciler[C]) pin(ctx context.Context, s *scope[C], id string) error {
	annotations := s.infra.GetAnnotations()
	pinned := annotations[infrav1.HypervisorIDAnnotation]
	if id == "" || pinned == id {
		return nil
	}
	if pinned != "" {
		for _, reader := range []client.Reader{r.Client, r.APIReader} {
			machines, err := r.machines(ctx, s, reader)
			if err != nil {
				return err
			}
			if len(machines) > 0 {
				return kit.SameSite(pinned, id)
			}
		}
	}
	annotations[infrav1.HypervisorIDAnnotation] = id // the cluster has an ID, so the map exists
	s.infra.SetAnnotations(annotations)
	return nil
}

// sorted returns failure domains in a stable order, and nil for an empty list.
func sorted(domains []clusterv1.FailureDomain) []clusterv1.FailureDomain {
	if len(domains) == 0 {
		return nil
	}
	return slices.SortedFunc(slices.Values(domains), func(a, b clusterv1.FailureDomain) int { return cmp.Compare(a.Name, b.Name) })
}
