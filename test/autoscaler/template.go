package autoscaler

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Annotations that describe the properties of a future node. They take precedence over the
// template.
const (
	capacity     = "capacity.cluster-autoscaler.kubernetes.io/"
	usualMaxPods = 110
)

// quantities are the resources that an annotation each can set.
var quantities = map[string]corev1.ResourceName{
	capacity + "cpu":            corev1.ResourceCPU,
	capacity + "memory":         corev1.ResourceMemory,
	capacity + "ephemeral-disk": corev1.ResourceEphemeralStorage,
}

// Template returns the predicted new node of the group while the group has no node. The autoscaler
// simulates the scheduling of pending pods on it.
func (g *Group) Template(ctx context.Context) (*corev1.Node, error) {
	infra, found, err := g.infrastructure(ctx)
	if err != nil {
		return nil, err
	}
	resources, err := g.capacity(infra)
	if err != nil {
		return nil, err
	}
	taints, err := g.taints()
	if err != nil {
		return nil, err
	}
	name := g.object.GetName() + "-template"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Spec.Taints = taints
	node.Status.Capacity, node.Status.Allocatable = resources, resources.DeepCopy()
	node.Labels = map[string]string{
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", corev1.LabelHostname: name,
	}
	if found {
		// An existing template without these values overwrites them with empty values, and then no
		// pod that requires an architecture fits.
		info, _, _ := unstructured.NestedStringMap(infra.Object, "status", "nodeInfo")
		node.Status.NodeInfo.Architecture, node.Status.NodeInfo.OperatingSystem = info["architecture"], info["operatingSystem"]
		node.Labels[corev1.LabelArchStable], node.Labels[corev1.LabelOSStable] = info["architecture"], info["operatingSystem"]
	}
	maps.Copy(node.Labels, g.labels())
	return node, nil
}

// sized reports whether a node's processors and memory are known.
func (g *Group) sized(ctx context.Context) (bool, error) {
	infra, _, err := g.infrastructure(ctx)
	if err != nil {
		return false, err
	}
	resources, err := g.capacity(infra)
	if err != nil {
		return false, err
	}
	_, cpu := resources[corev1.ResourceCPU]
	_, memory := resources[corev1.ResourceMemory]
	return cpu && memory, nil
}

// capacity returns a node's resources. There need be no machine template.
func (g *Group) capacity(infra *unstructured.Unstructured) (corev1.ResourceList, error) {
	resources := corev1.ResourceList{}
	if infra != nil {
		known, _, err := unstructured.NestedStringMap(infra.Object, "status", "capacity")
		if err != nil {
			return nil, fmt.Errorf("reading capacity of %s: %w", infra.GetName(), err)
		}
		for name, text := range known {
			quantity, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("reading capacity of %s: %w", infra.GetName(), err)
			}
			resources[corev1.ResourceName(name)] = quantity
		}
	}
	annotations := g.object.GetAnnotations()
	for key, name := range quantities {
		if text := annotations[key]; text != "" {
			quantity, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", key, err)
			}
			resources[name] = quantity
		}
	}
	pods, err := number(annotations, capacity+"maxPods")
	if err != nil {
		return nil, err
	}
	if pods == 0 {
		pods = usualMaxPods
	}
	resources[corev1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
	gpus, err := number(annotations, capacity+"gpu-count")
	if err != nil {
		return nil, err
	}
	if kind := annotations[capacity+"gpu-type"]; kind != "" && gpus > 0 {
		resources[corev1.ResourceName(kind)] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return resources, nil
}

func number(annotations map[string]string, key string) (int64, error) {
	text := annotations[key]
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", key, err)
	}
	return n, nil
}

// labels returns a node's labels: of all versions only the annotation is read.
func (g *Group) labels() map[string]string {
	found := map[string]string{}
	for pair := range strings.SplitSeq(g.object.GetAnnotations()[capacity+"labels"], ",") {
		if key, value, isPair := strings.Cut(pair, "="); isPair {
			found[key] = value
		}
	}
	return found
}

// taints returns a node's taints, each key[=value]:effect. A malformed taint is an error here; the
// autoscaler ignores it.
func (g *Group) taints() ([]corev1.Taint, error) {
	text := g.object.GetAnnotations()[capacity+"taints"]
	if text == "" {
		return nil, nil
	}
	var taints []corev1.Taint
	for part := range strings.SplitSeq(text, ",") {
		pair, effect, complete := strings.Cut(part, ":")
		key, value, _ := strings.Cut(pair, "=")
		if !complete || key == "" || strings.ContainsAny(value, "=:") {
			return nil, fmt.Errorf("malformed taint %q", part)
		}
		taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return taints, nil
}

// infrastructure returns the machine template, if it is there. Its
// resource is the kind in small letters with an s, at the first version of its
// group that serves it.
func (g *Group) infrastructure(ctx context.Context) (*unstructured.Unstructured, bool, error) {
	ref, _, err := unstructured.NestedStringMap(g.object.Object, "spec", "template", "spec", "infrastructureRef")
	if err != nil {
		return nil, false, fmt.Errorf("reading reference to infrastructure: %w", err)
	}
	version, err := g.driver.serving(ref["apiGroup"], ref["kind"])
	if err != nil {
		return nil, false, err
	}
	plural := schema.GroupVersionResource{Group: ref["apiGroup"], Version: version, Resource: strings.ToLower(ref["kind"]) + "s"}
	lister, err := g.driver.lister(ctx, plural)
	if err != nil {
		return nil, false, err
	}
	object, err := lister.Get(ref["name"])
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading machine template: %w", err)
	}
	template, isUnstructured := object.(*unstructured.Unstructured)
	if !isUnstructured {
		return nil, false, fmt.Errorf("reading machine template: got %T", object)
	}
	return template, true, nil
}

// serving returns the first version of a group that has a kind. Versions of
// the autoscaler before that take the version of Cluster API's own group.
func (d *Driver) serving(group, kind string) (string, error) {
	list, err := d.discovery.ServerGroups()
	if err != nil {
		return "", fmt.Errorf("discovering groups: %w", err)
	}
	for i := range list.Groups {
		if list.Groups[i].Name != group {
			continue
		}
		for _, v := range list.Groups[i].Versions {
			resources, err := d.discovery.ServerResourcesForGroupVersion(v.GroupVersion)
			if err != nil {
				return "", fmt.Errorf("discovering %s: %w", v.GroupVersion, err)
			}
			for j := range resources.APIResources {
				if resources.APIResources[j].Kind == kind {
					return v.Version, nil
				}
			}
		}
	}
	return "", fmt.Errorf("no version of %q has %s", group, kind)
}
