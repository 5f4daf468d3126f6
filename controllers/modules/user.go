package modules

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// NewUser returns this manager's user in workload clusters. It writes Nova's substitutions there and
// nothing else: Flux applies the modules with the kubeconfig.
func NewUser(authority workload.Authority) *workload.User {
	return &workload.User{Name: "nova-addon", Authority: authority, Permissions: workload.Permissions{Cluster: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/"}},
		{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"namespaces"}},
		{
			Verbs: []string{"get", "create", "patch"}, APIGroups: []string{""}, Resources: []string{"configmaps"},
			ResourceNames: []string{modules.SubstituteConfig},
		},
	}}}
}
