package modules

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// selection is whether a set applies to a Cluster.
type selection string

const (
	selected   selection = "Selected"
	unselected selection = "Unselected"
	// forbidden means that the set selects the Cluster, but its namespace does not allow that.
	forbidden selection = "Forbidden"
)

// selects decides whether a set applies to a Cluster in namespace.
func selects(set *addonsv1.NovaModuleSet, cluster *clusterv1.Cluster, namespace *corev1.Namespace) (selection, error) {
	matches, err := matchesCluster(set, cluster, namespace)
	allowed := set.Namespace == cluster.Namespace || allows(namespace, set.Namespace)
	if !allowed && err != nil {
		// A mistake in a set that the namespace does not allow must not disturb its Clusters.
		matches, err = false, nil
	}
	switch {
	case err != nil:
		return unselected, err
	case !matches:
		return unselected, nil
	case !allowed:
		return forbidden, nil
	default:
		return selected, nil
	}
}

// matchesCluster reports whether the selectors of a set match a Cluster.
func matchesCluster(set *addonsv1.NovaModuleSet, cluster *clusterv1.Cluster, namespace *corev1.Namespace) (bool, error) {
	if !maySelect(set, cluster.Namespace) {
		return false, nil
	}
	found, err := matches(set.Spec.ClusterSelector, cluster.Labels)
	if err != nil {
		return false, fmt.Errorf("reading clusterSelector: %w", err)
	}
	if !found || set.Namespace == cluster.Namespace || slices.Contains(set.Spec.Namespaces.List, cluster.Namespace) {
		return found, nil
	}
	if found, err = matches(set.Spec.Namespaces.Selector, namespace.Labels); err != nil {
		return false, fmt.Errorf("reading namespaces.selector: %w", err)
	}
	return found, nil
}

// maySelect reports whether a set may select Clusters in a namespace, according to the spec of the set
// alone.
func maySelect(set *addonsv1.NovaModuleSet, namespace string) bool {
	return set.Namespace == namespace || set.Spec.Namespaces.Selector != nil || slices.Contains(set.Spec.Namespaces.List, namespace)
}

func matches(selector *metav1.LabelSelector, of map[string]string) (bool, error) {
	if selector == nil {
		return false, nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	return s.Matches(labels.Set(of)), nil
}

// allows reports whether a namespace allows sets of another namespace.
func allows(namespace *corev1.Namespace, from string) bool {
	for name := range strings.SplitSeq(namespace.Annotations[addonsv1.AllowFromAnnotation], ",") {
		if name = strings.TrimSpace(name); name == "*" || name == from {
			return true
		}
	}
	return false
}

// candidates lists the Clusters that a set may select, with their namespaces.
func candidates(ctx context.Context, c client.Reader, set *addonsv1.NovaModuleSet) ([]clusterv1.Cluster, map[string]*corev1.Namespace, error) {
	var where []client.ListOption
	if len(set.Spec.Namespaces.List) == 0 && set.Spec.Namespaces.Selector == nil {
		where = append(where, client.InNamespace(set.Namespace))
	}
	clusters := &clusterv1.ClusterList{}
	if err := c.List(ctx, clusters, where...); err != nil {
		return nil, nil, fmt.Errorf("listing Clusters: %w", err)
	}
	namespaces := map[string]*corev1.Namespace{}
	for i := range clusters.Items {
		name := clusters.Items[i].Namespace
		if namespaces[name] != nil || name == set.Namespace {
			continue
		}
		namespace := &corev1.Namespace{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, namespace); client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("reading Namespace: %w", err)
		}
		namespaces[name] = namespace
	}
	return clusters.Items, namespaces, nil
}
