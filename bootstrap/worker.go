package bootstrap

import (
	"strings"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

const maxPods = "max-pods"

// WorkerNode is what the Node of a worker has once pods may go there.
type WorkerNode struct {
	// Labels are those of its roles and those that its kubelet sets.
	Labels map[string]string
	// Taints are those that stay: the one it starts with, until Cluster API
	// has set its labels, is not among them.
	Taints []bootstrapv1.Taint
	// MaxPods is how many pods it takes. Empty means the kubelet's default.
	MaxPods string
}

// Worker tells what the Node of a worker with this spec will have, before
// there is one.
func Worker(spec *bootstrapv1.NodeConfigSpec) WorkerNode {
	roles := Roles(spec, false)
	node := WorkerNode{Labels: RoleLabels(roles)}
	for _, role := range tainting(roles) {
		node.Taints = append(node.Taints, bootstrapv1.Taint{Key: roleKey(role), Effect: effect})
	}
	node.Taints = append(node.Taints, spec.Taints...)
	for _, a := range spec.Kubelet.ExtraArgs {
		switch a.Name {
		case nodeLabels:
			for label := range strings.SplitSeq(value(a), ",") {
				if key, text, _ := strings.Cut(strings.TrimSpace(label), "="); key != "" {
					node.Labels[key] = text
				}
			}
		case maxPods: // of several the kubelet takes the last
			node.MaxPods = value(a)
		}
	}
	return node
}
