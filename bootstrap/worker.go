package bootstrap

import (
	"strings"

	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

const maxPods = "max-pods"

// WorkerNode describes the Node of a worker once it accepts pods.
type WorkerNode struct {
	// Labels contains the labels of its roles and those that its kubelet sets.
	Labels map[string]string
	// Taints contains the permanent taints, without the taint that Cluster API
	// removes once it has set the labels.
	Taints []bootstrapv1.Taint
	// MaxPods is the maximum number of pods. If not set, the kubelet's default
	// applies.
	MaxPods string
}

// Worker returns the Node that a worker with this spec will have in a failure
// domain, before it exists.
func Worker(spec *bootstrapv1.NodeConfigSpec, failureDomain string) WorkerNode {
	roles := Roles(spec, false)
	node := WorkerNode{Labels: RoleLabels(roles)}
	if zone(failureDomain) != "" {
		node.Labels[zoneLabel] = failureDomain
	}
	for _, role := range tainted(roles) {
		node.Taints = append(node.Taints, bootstrapv1.Taint{Key: roleKey(role), Effect: effect})
	}
	node.Taints = append(node.Taints, spec.Taints...)
	for _, a := range spec.Kubelet.ExtraArgs {
		switch a.Name {
		case nodeLabels:
			for label := range strings.SplitSeq(ptr.Deref(a.Value, ""), ",") {
				if key, text, _ := strings.Cut(strings.TrimSpace(label), "="); key != "" {
					node.Labels[key] = text
				}
			}
		case maxPods: // the kubelet reads the last of several
			node.MaxPods = ptr.Deref(a.Value, "")
		}
	}
	return node
}
