package cluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
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
	annotations := s.infra.GetAnnotations()
	if annotations[infrav1.ClusterIDAnnotation] != "" && !recorded {
		return false, nil
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[infrav1.ClusterIDAnnotation] == "" {
		annotations[infrav1.ClusterIDAnnotation] = string(s.infra.GetUID())
	}
	s.infra.SetAnnotations(annotations)
	// The optimistic lock prevents a stale copy from replacing an ID that is in use.
	patch := client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, s.infra, patch); err != nil {
		return false, fmt.Errorf("writing cluster ID: %w", err)
	}
	return true, nil
}
