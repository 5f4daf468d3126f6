package bootstrap

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	nodeLabels = "node-labels"
	// zoneLabel is the label of a node with its failure domain, which a kubelet may set on
	// its own node.
	zoneLabel = "topology.kubernetes.io/zone"
)

// labelValue matches the value of a label that is not empty.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// zone returns the label of nodes in a failure domain, or an empty string if there is no
// failure domain, or its name cannot be the value of a label.
func zone(failureDomain string) string {
	if !labelValue.MatchString(failureDomain) {
		return ""
	}
	return zoneLabel + "=" + failureDomain
}

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
// one, because a kubelet reads only the last one. Of several values of a label it
// uses the last one, so the user's replaces ours.
func kubeletArgs(in *Input, labels ...string) ([]any, error) {
	spec := &in.Spec
	var users []bootstrapv1.Arg
	if label := zone(in.FailureDomain); label != "" {
		labels = append(labels, label)
	}
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
