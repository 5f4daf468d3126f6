package cluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
)

// ensureClusterID generates the ID of a cluster once, and records with it which management cluster did
// so. It reports whether it wrote anything. The ID is an annotation, because clusterctl move changes
// the UID of the object and keeps annotations. A cluster that is deleted before it has an ID gets one
// as well: its machines need the ID to find that they have no VM.
func (r *Reconciler[C]) ensureClusterID(ctx context.Context, s *scope[C]) (bool, error) {
	original, ok := s.infra.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("copying cluster: %T is no object", s.infra)
	}
	recorded := r.Fence.Record(s.infra)
	generated := s.infra.GetAnnotations()[infrav1.ClusterIDAnnotation] == "" &&
		annotations.AddAnnotations(s.infra, map[string]string{infrav1.ClusterIDAnnotation: string(s.infra.GetUID())})
	if !generated && !recorded {
		return false, nil
	}
	// The optimistic lock prevents a stale copy from replacing an ID that is in use.
	patch := client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, s.infra, patch); err != nil {
		return false, fmt.Errorf("writing cluster ID: %w", err)
	}
	return true, nil
}

// pin binds a cluster to the hypervisor on which it was first seen, for as long as the cluster has
// machines: another hypervisor has none of their VMs, so all would appear to be missing. The pin is an
// annotation, because clusterctl move drops the status. It is the hypervisor's own ID, because a
// server name is not sufficient: two names may resolve to one vCenter, and a name may resolve to
// another vCenter after a change of DNS.
func (r *Reconciler[C]) pin(ctx context.Context, s *scope[C], id string) error {
	pinned := s.infra.GetAnnotations()[infrav1.HypervisorIDAnnotation]
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
	annotations.AddAnnotations(s.infra, map[string]string{infrav1.HypervisorIDAnnotation: id})
	return nil
}
