package bootstrap

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
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
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: joinGroup}}
	everywhere := metav1.ObjectMeta{Name: joinRights}
	system := metav1.ObjectMeta{Name: joinRights, Namespace: metav1.NamespaceSystem}
	clusterRole, clusterBinding := &rbacv1.ClusterRole{ObjectMeta: everywhere}, &rbacv1.ClusterRoleBinding{ObjectMeta: everywhere}
	role, binding := &rbacv1.Role{ObjectMeta: system}, &rbacv1.RoleBinding{ObjectMeta: system}
	for _, right := range []struct {
		object client.Object
		fill   func()
	}{
		{clusterRole, func() {
			clusterRole.Rules = joinRules()
		}},
		{clusterBinding, func() {
			clusterBinding.Subjects = subjects
			clusterBinding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: joinRights}
		}},
		{role, func() {
			role.Rules = joinSystemRules()
		}},
		{binding, func() {
			binding.Subjects = subjects
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: joinRights}
		}},
	} {
		_, err := controllerutil.CreateOrUpdate(ctx, tenant, right.object, func() error {
			right.fill()
			return nil
		})
		if err != nil {
			return fmt.Errorf("letting machines join: %w", err)
		}
	}
	return nil
}
