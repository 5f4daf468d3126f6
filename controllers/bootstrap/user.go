package bootstrap

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
)

// NewUser returns the user that this manager is in tenants, with permissions for
// all that the manager requests there, and no more. What machines may do before
// they have joined is part of them, because a user can only give what it has.
// Tokens are not: they are for clusters whose CA has no key here, where the
// manager has no user of its own.
func NewUser(authority workload.Authority) *workload.User {
	certificates, rbac := []string{certificatesv1.GroupName}, []string{rbacv1.GroupName}
	write := []string{"get", "update"}
	return &workload.User{Name: "nova-bootstrap", Authority: authority, Permissions: workload.Permissions{
		Cluster: append(joinRules(),
			rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/"}},
			// The addresses of others are not certified for a node.
			rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"nodes"}},
			rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{"kubernetes"}},
			rbacv1.PolicyRule{Verbs: []string{"update", "patch"}, APIGroups: certificates, Resources: []string{"certificatesigningrequests/approval"}},
			rbacv1.PolicyRule{Verbs: []string{"approve"}, APIGroups: certificates, Resources: []string{"signers"}, ResourceNames: judgedSigners},
			rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: rbac, Resources: []string{"clusterroles", "clusterrolebindings"}},
			rbacv1.PolicyRule{Verbs: write, APIGroups: rbac, Resources: []string{"clusterroles"}, ResourceNames: []string{joinRights}},
			rbacv1.PolicyRule{Verbs: write, APIGroups: rbac, Resources: []string{"clusterrolebindings"}, ResourceNames: []string{joinRights, renewRights}},
			rbacv1.PolicyRule{Verbs: []string{"delete"}, APIGroups: rbac, Resources: []string{"clusterrolebindings"}, ResourceNames: []string{kubeadmRenewal}},
			rbacv1.PolicyRule{Verbs: []string{"bind"}, APIGroups: rbac, Resources: []string{"clusterroles"}, ResourceNames: []string{renewRole}},
		),
		System: append(joinSystemRules(),
			rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: rbac, Resources: []string{"roles", "rolebindings"}},
			rbacv1.PolicyRule{Verbs: write, APIGroups: rbac, Resources: []string{"roles", "rolebindings"}, ResourceNames: []string{joinRights}},
		),
	}}
}
