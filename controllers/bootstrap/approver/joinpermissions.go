package approver

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
)

// joinRole is the name of the role and binding that allow machines to join.
const joinRole = "nova:join"

// joinRules are the permissions of a machine that has not joined yet.
func joinRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
	}
}

// joinSystemRules are the same permissions in namespace kube-system.
func joinSystemRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"},
		ResourceNames: []string{"kubeadm-config", "kubelet-config", "kube-proxy"},
	}}
}

// allowJoin allows machines to join a workload cluster: before it has joined, a machine may request a
// certificate and read the objects that kubeadm reads. kubeadm grants the same to its own group, whose
// requests are approved for any node; the requests of our group are checked. Changes by others are
// reverted.
func allowJoin(ctx context.Context, workloadClient client.Client) error {
	machines := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: joining.Group}
	_, err := workload.Permissions{Cluster: joinRules(), System: joinSystemRules()}.WriteFor(ctx, joinRole, machines, workloadClient)
	if err != nil {
		return fmt.Errorf("allowing machines to join: %w", err)
	}
	return nil
}
