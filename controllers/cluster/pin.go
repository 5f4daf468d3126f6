package cluster

import (
	"cmp"
	"context"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

// pin keeps a cluster to the hypervisor it was first seen on for as long as it
// has machines: another one has none of their VMs, so all would look lost. It
// is an annotation, as clusterctl move drops the status, and it is the
// hypervisor's own ID, as the name of a server says little: two may lead to
// one vCenter, and one may lead to another after a change of DNS.
func (r *Reconciler[C]) pin(ctx context.Context, s *scope[C], id string) error {
	annotations := s.infra.GetAnnotations()
	home := annotations[infrav1.HypervisorIDAnnotation]
	if id == "" || home == id {
		return nil
	}
	if home != "" {
		for _, reader := range []client.Reader{r.Client, r.APIReader} {
			machines, err := r.machines(ctx, s, reader)
			if err != nil {
				return err
			}
			if len(machines) > 0 {
				return loop.SameSite(home, id)
			}
		}
	}
	annotations[infrav1.HypervisorIDAnnotation] = id // the cluster has an ID, so the map is there
	s.infra.SetAnnotations(annotations)
	return nil
}

// sorted returns failure domains in an order that does not change by chance,
// and none as nil.
func sorted(domains []clusterv1.FailureDomain) []clusterv1.FailureDomain {
	if len(domains) == 0 {
		return nil
	}
	return slices.SortedFunc(slices.Values(domains), func(a, b clusterv1.FailureDomain) int { return cmp.Compare(a.Name, b.Name) })
}
