package controlplane

import (
	rbacv1 "k8s.io/api/rbac/v1"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/probe"
)

// NewUser returns the user of this manager in workload clusters, with exactly
// the permissions that the manager needs there.
func NewUser(authority pki.Authority) *workload.User {
	return &workload.User{Name: certificates.ManagerUser, Authority: authority, Permissions: workload.Permissions{
		Cluster: []rbacv1.PolicyRule{
			{Verbs: []string{"get"}, NonResourceURLs: []string{"/", "/livez/ping"}},
			{Verbs: []string{"get", "list", "watch", "delete"}, APIGroups: []string{""}, Resources: []string{"nodes"}},
			{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}},
			{Verbs: []string{"get", "create"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterrolebindings"}},
			{
				Verbs: []string{"bind"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"},
				ResourceNames: []string{"system:kubelet-api-admin"},
			},
		},
		System: []rbacv1.PolicyRule{
			{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}},
			{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods/eviction"}},
			{Verbs: []string{"get", "create"}, APIGroups: []string{""}, Resources: []string{"pods/portforward"}},
			{
				Verbs: []string{"get", "list", "watch", "update"}, APIGroups: []string{""}, Resources: []string{"configmaps"},
				ResourceNames: []string{kubeadm.ConfigName, kubeadm.KubeProxyName, kubeadm.CoreDNSName, controlplanev1.EtcdRestoresConfigMap},
			},
			{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
			{Verbs: []string{"get", "patch"}, APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, ResourceNames: []string{kubeadm.KubeProxyName}},
			{Verbs: []string{"get", "patch"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{kubeadm.CoreDNSName}},
			{Verbs: []string{"get", "update"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{probe.KubeVIPLease}},
		},
		Bindings: []rbacv1.ClusterRoleBinding{kubeadm.ClusterRoleBinding(certificates.AdminsGroup, "cluster-admin", rbacv1.GroupKind, certificates.AdminsGroup)},
	}}
}
