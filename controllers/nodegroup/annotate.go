package nodegroup

import (
	"maps"
	"path"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
)

// Annotations of a MachineDeployment that cluster-autoscaler reads.
const (
	LabelsAnnotation  = "capacity.cluster-autoscaler.kubernetes.io/labels"
	TaintsAnnotation  = "capacity.cluster-autoscaler.kubernetes.io/taints"
	MaxPodsAnnotation = "capacity.cluster-autoscaler.kubernetes.io/maxPods"
)

// WrittenAnnotation records the values that this package wrote last. A value
// that differs from its record was set by a user.
const WrittenAnnotation = "nova.bootstrap.cluster.x-k8s.io/node-group"

// written are the annotations that this package writes.
func written() []string { return []string{LabelsAnnotation, TaintsAnnotation, MaxPodsAnnotation} }

// isNodeGroup reports whether cluster-autoscaler may scale d.
func isNodeGroup(d *clusterv1.MachineDeployment) bool {
	_, found := d.Annotations[clusterv1.AutoscalerMaxSizeAnnotation]
	return found
}

// expected returns the annotations that describe the nodes of d to
// cluster-autoscaler.
func expected(d *clusterv1.MachineDeployment, node bootstrap.WorkerNode) map[string]string {
	labels := maps.Clone(node.Labels)
	for key, value := range d.Spec.Template.Labels {
		if propagated(key) {
			labels[key] = value
		}
	}
	var taints []string
	for _, t := range d.Spec.Template.Spec.Taints {
		taints = append(taints, taint(t.Key, t.Value, string(t.Effect)))
	}
	for _, t := range node.Taints {
		taints = append(taints, taint(t.Key, t.Value, t.Effect))
	}
	known := map[string]string{LabelsAnnotation: list(labels), TaintsAnnotation: unique(taints), MaxPodsAnnotation: node.MaxPods}
	maps.DeleteFunc(known, func(_, value string) bool { return value == "" })
	return known
}

// propagated reports whether Cluster API propagates a label from a Machine to
// its Node.
func propagated(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	if domain == clusterv1.NodeRoleLabelPrefix {
		return true
	}
	for _, managed := range []string{clusterv1.NodeRestrictionLabelDomain, clusterv1.ManagedNodeLabelDomain} {
		if domain == managed || strings.HasSuffix(domain, "."+managed) {
			return true
		}
	}
	return false
}

// list formats labels as the autoscaler reads them, in a stable order.
func list(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for key, value := range labels {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

func taint(key, value, effect string) string {
	if value != "" {
		key += "=" + value
	}
	return key + ":" + effect
}

func unique(taints []string) string {
	slices.Sort(taints)
	return strings.Join(slices.Compact(taints), ",")
}

// annotate returns the annotations with the wanted values, and whether that
// changes them. Values that were set by a user are kept, and this package does
// not manage them anymore.
func annotate(annotations, wanted map[string]string) (result map[string]string, changed bool) {
	ours := strings.Split(annotations[WrittenAnnotation], separator)
	result = map[string]string{}
	maps.Copy(result, annotations)
	var now []string
	for _, key := range written() {
		current, present := annotations[key]
		if present && !slices.Contains(ours, record(key, current)) {
			continue
		}
		delete(result, key)
		if value, want := wanted[key]; want {
			result[key] = value
			now = append(now, record(key, value))
		}
	}
	delete(result, WrittenAnnotation)
	if len(now) > 0 {
		result[WrittenAnnotation] = strings.Join(now, separator)
	}
	return result, !maps.Equal(annotations, result)
}

// separator does not occur in labels, taints or numbers.
const separator = ";"

// record returns the record of a written value. The last segment of the key
// identifies the annotation.
func record(key, value string) string {
	return path.Base(key) + " " + value
}
