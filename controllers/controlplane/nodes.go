package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// deleteOrphanedNodes deletes nodes of the control plane whose machines are deleted.
// Cluster API deletes a node with its machine, except after its timeout for the
// workload cluster or if a user bypassed Cluster API.
func (r *remover) deleteOrphanedNodes(ctx context.Context, s *scope.Scope) error {
	if !s.Initialized || !s.Workload.Answers || len(orphanedNodes(s)) == 0 {
		return nil
	}
	// The cache may not contain the newest machines yet.
	seen := *s
	live, err := r.ownedMachines(ctx, r.APIReader, &seen)
	if err != nil {
		return err
	}
	seen.Machines = live
	for _, name := range orphanedNodes(&seen) {
		if err := r.WorkloadClusters.DeleteNode(ctx, s.Key(), name); err != nil {
			return fmt.Errorf("deleting node %s of a deleted machine: %w", name, err)
		}
		r.Event(s, corev1.EventTypeNormal, "NodeDeleted", "DeleteNode", fmt.Sprintf("Deleted node %s, whose machine does not exist", name))
	}
	return nil
}

// orphanedNodes returns the nodes to delete: nodes that do not run any more and have
// no member of etcd.
func orphanedNodes(s *scope.Scope) []string {
	var names []string
	for _, node := range s.Workload.Nodes {
		if node.ControlPlane && !node.Ready && scope.HasDeletedMachine(s, node) && !isMember(s, node.Name) && !s.InGrace.Has(node.Name) {
			names = append(names, node.Name)
		}
	}
	return names
}

// isMember reports whether a node may have a member of etcd.
func isMember(s *scope.Scope, node string) bool {
	if scope.ExternalEtcd(s) {
		return false
	}
	if s.Workload.Etcd == nil {
		return true
	}
	for _, m := range s.Workload.Etcd.Members {
		if m.Name == node {
			return true
		}
	}
	return false
}
