package bootstrap

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
)

// joinRights names what lets machines join.
const joinRights = "nova:join"

// joinRules are the permissions of a machine that has not joined yet.
func joinRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
	}
}

// joinSystemRules are the same for namespace kube-system.
func joinSystemRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"},
		ResourceNames: []string{"kubeadm-config", "kubelet-config", "kube-proxy"},
	}}
}

// grant lets machines join a tenant: before it has joined, a machine may ask
// for a certificate and read what kubeadm reads. kubeadm gives the same to a
// group of its own, whose requests are approved whichever node they are for;
// those of our group are judged. What somebody changed is put back.
func grant(ctx context.Context, tenant client.Client) error {
	machines := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: joinGroup}
	_, err := workload.Permissions{Cluster: joinRules(), System: joinSystemRules()}.WriteFor(ctx, joinRights, machines, tenant)
	if err != nil {
		return fmt.Errorf("letting machines join: %w", err)
	}
	return nil
}
