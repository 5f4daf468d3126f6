package bootstrap

import (
	"slices"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

const (
	// rolePrefix is the domain of role labels and taints.
	rolePrefix = "node-role.kubernetes.io/"
	// uninitializedTaint is the taint that Cluster API removes.
	uninitializedTaint = "node.cluster.x-k8s.io/uninitialized"
	// effect is the effect of all taints that this package sets.
	effect = "NoSchedule"
)

// Roles returns the roles of the machine's node.
func Roles(spec *bootstrapv1.NodeConfigSpec, controlPlane bool) []bootstrapv1.NodeRole {
	switch {
	case len(spec.Roles) > 0:
		return spec.Roles
	case controlPlane:
		return []bootstrapv1.NodeRole{bootstrapv1.NodeRoleControlPlane}
	default:
		return []bootstrapv1.NodeRole{bootstrapv1.NodeRoleWorker}
	}
}

// RoleLabels returns the labels of a node with these roles. A kubelet may not
// set them on its own Node, so they are set on the Machine, and Cluster API
// copies them to the Node.
func RoleLabels(roles []bootstrapv1.NodeRole) map[string]string {
	labels := make(map[string]string, len(roles))
	for _, role := range roles {
		labels[roleKey(role)] = ""
	}
	return labels
}

func roleKey(role bootstrapv1.NodeRole) string {
	return rolePrefix + string(role)
}

// taints returns the taints that a node registers with. A node that is also a
// worker accepts all pods, so the taints of its other roles are left out. A
// node outside of the control plane starts uninitialized, so that nothing is
// scheduled on it before Cluster API has set its labels.
func taints(roles []bootstrapv1.NodeRole, controlPlane bool) []any {
	list := []any{}
	if !controlPlane {
		list = append(list, taint(uninitializedTaint))
	}
	for _, role := range tainted(roles) {
		list = append(list, taint(roleKey(role)))
	}
	return list
}

// tainted returns the roles whose nodes have a taint.
func tainted(roles []bootstrapv1.NodeRole) []bootstrapv1.NodeRole {
	var free []bootstrapv1.NodeRole
	if slices.Contains(roles, bootstrapv1.NodeRoleWorker) {
		return nil
	}
	for _, role := range []bootstrapv1.NodeRole{bootstrapv1.NodeRoleControlPlane, bootstrapv1.NodeRoleInfra} {
		if slices.Contains(roles, role) {
			free = append(free, role)
		}
	}
	return free
}

// ownTaints returns the taints that the user adds to those of the roles.
func ownTaints(spec *bootstrapv1.NodeConfigSpec) []any {
	list := make([]any, 0, len(spec.Taints))
	for _, t := range spec.Taints {
		own := map[string]any{"key": t.Key, "effect": t.Effect}
		if t.Value != "" {
			own["value"] = t.Value
		}
		list = append(list, own)
	}
	return list
}

func taint(key string) map[string]any {
	return map[string]any{"key": key, "effect": effect}
}

// checkRoles rejects roles that do not fit the machine.
func checkRoles(roles []bootstrapv1.NodeRole, controlPlane bool) error {
	named := slices.Contains(roles, bootstrapv1.NodeRoleControlPlane)
	switch {
	case controlPlane && !named:
		return renderErrorf("spec.roles", "must include control-plane on a control plane machine")
	case !controlPlane && named:
		return renderErrorf("spec.roles", "control-plane is only for machines of the control plane")
	}
	return nil
}
