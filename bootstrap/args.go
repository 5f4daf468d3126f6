package bootstrap

import (
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const nodeLabels = "node-labels"

// arg is a command line argument that this package sets.
type arg struct{ name, value string }

// mergeArgs returns the arguments in kubeadm's form. The user's argument
// replaces ours of the same name.
func mergeArgs(ours []arg, users []bootstrapv1.Arg) []any {
	list := []any{}
	for _, a := range ours {
		named := func(u bootstrapv1.Arg) bool { return u.Name == a.name }
		if !slices.ContainsFunc(users, named) {
			list = append(list, map[string]any{"name": a.name, "value": a.value})
		}
	}
	for _, u := range users {
		list = append(list, map[string]any{"name": u.Name, "value": ptr.Deref(u.Value, "")})
	}
	return list
}

// kubeletArgs returns the kubelet's arguments. All node-labels are merged into
// one, because a kubelet reads only the last one.
func kubeletArgs(spec *bootstrapv1.NodeConfigSpec) ([]any, error) {
	var users []bootstrapv1.Arg
	var labels []string
	for _, a := range spec.Kubelet.ExtraArgs {
		if a.Name != nodeLabels {
			users = append(users, a)
			continue
		}
		if strings.Contains(ptr.Deref(a.Value, ""), rolePrefix) {
			return nil, renderErrorf("spec.kubelet.extraArgs[node-labels]",
				"a kubelet may not set labels of %s on its own node; name the role in spec.roles, or label the Machine", strings.TrimSuffix(rolePrefix, "/"))
		}
		labels = append(labels, ptr.Deref(a.Value, ""))
	}
	ours := []arg{{"node-ip", nodeconfig.NodeIP}, {"provider-id", nodeconfig.ProviderID}}
	if spec.Swap.SizeMiB > 0 {
		ours = append(ours, arg{"fail-swap-on", "false"})
	}
	if len(labels) > 0 {
		ours = append(ours, arg{nodeLabels, strings.Join(labels, ",")})
	}
	return mergeArgs(ours, users), nil
}
