package approver

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
)

// NewUser returns this manager's user in workload clusters, with exactly the permissions for the
// manager's requests there. They include the permissions of machines before they have joined, because
// a user can only grant permissions that it has. They do not include tokens: tokens are for clusters
// whose CA key is not available here, where the manager has no own user.
func NewUser(authority workload.Authority) *workload.User {
	certificates, rbac := []string{certificatesv1.GroupName}, []string{rbacv1.GroupName}
	write := []string{"get", "update"}
	return &workload.User{Name: "nova-bootstrap", Authority: authority, Permissions: workload.Permissions{
		Namespace: nodeconfig.SettingsNamespace,
		Own:       nodesettings.Rules(),
		Cluster: append(joinRules(),
			rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/"}},
			// A serving certificate must not contain the addresses of other nodes, and the condition of a
			// Node about Puppet is copied to its Machine.
			rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"nodes"}},
			// A node is drained before its kubelet gets another minor version.
			rbacv1.PolicyRule{Verbs: []string{"patch"}, APIGroups: []string{""}, Resources: []string{"nodes"}},
			rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods", "namespaces"}},
			rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods/eviction"}},
			rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}},
			rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{"kubernetes"}},
			rbacv1.PolicyRule{Verbs: []string{"update", "patch"}, APIGroups: certificates, Resources: []string{"certificatesigningrequests/approval"}},
			// If the CAs have their keys elsewhere, the manager has the requests signed.
			rbacv1.PolicyRule{Verbs: []string{"approve", "sign"}, APIGroups: certificates, Resources: []string{"signers"}, ResourceNames: signers},
			rbacv1.PolicyRule{Verbs: []string{"patch"}, APIGroups: certificates, Resources: []string{"certificatesigningrequests/status"}},
			rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: rbac, Resources: []string{"clusterroles", "clusterrolebindings"}},
			rbacv1.PolicyRule{Verbs: write, APIGroups: rbac, Resources: []string{"clusterroles"}, ResourceNames: []string{joinRole}},
			rbacv1.PolicyRule{Verbs: write, APIGroups: rbac, Resources: []string{"clusterrolebindings"}, ResourceNames: []string{joinRole, renewBinding}},
			rbacv1.PolicyRule{Verbs: []string{"delete"}, APIGroups: rbac, Resources: []string{"clusterrolebindings"}, ResourceNames: []string{kubeadmRenewal}},
			rbacv1.PolicyRule{Verbs: []string{"bind"}, APIGroups: rbac, Resources: []string{"clusterroles"}, ResourceNames: []string{renewRole}},
		),
		System: append(joinSystemRules(),
			rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: rbac, Resources: []string{"roles", "rolebindings"}},
			rbacv1.PolicyRule{Verbs: write, APIGroups: rbac, Resources: []string{"roles", "rolebindings"}, ResourceNames: []string{joinRole}},
		),
	}}
}
