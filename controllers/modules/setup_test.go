package modules

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

func aSet(namespace, name string, selector map[string]string, into addonsv1.NamespaceSelector) *addonsv1.NovaModuleSet {
	return &addonsv1.NovaModuleSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       addonsv1.NovaModuleSetSpec{ClusterSelector: &metav1.LabelSelector{MatchLabels: selector}, Namespaces: into},
	}
}

// A change of a Cluster or a Namespace triggers the sets that it affects and no others.
func TestEnqueuesOnlyRelatedSets(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{addonsv1.AddToScheme, clusterv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	labels := map[string]string{"modules": "base"}
	everywhere := addonsv1.NamespaceSelector{Selector: &metav1.LabelSelector{}}
	r := &SetReconciler{rollouts: &rolloutState{}, Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		aSet("blue", "own", labels, addonsv1.NamespaceSelector{}),
		aSet("blue", "other-label", map[string]string{"modules": "more"}, addonsv1.NamespaceSelector{}),
		aSet("blue", "former", map[string]string{"modules": "former"}, addonsv1.NamespaceSelector{}),
		aSet("red", "of-others", labels, addonsv1.NamespaceSelector{}),
		aSet("platform", "listed", labels, addonsv1.NamespaceSelector{List: []string{"blue"}}),
		aSet("platform", "everywhere", nil, everywhere),
	).Build()}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "c", Labels: labels}}
	r.rollouts.setReport(key{Namespace: "blue", Name: "former"}, client.ObjectKeyFromObject(cluster), clusterReport{})
	for name, tc := range map[string]struct {
		got  []ctrl.Request
		want []string
	}{
		"Cluster":   {r.setsOf(t.Context(), cluster), []string{"blue/former", "blue/own", "platform/everywhere", "platform/listed"}},
		"Namespace": {r.setsInto(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}), []string{"platform/everywhere", "platform/listed"}},
	} {
		var woken []string
		for _, request := range tc.got {
			woken = append(woken, request.String())
		}
		slices.Sort(woken)
		if !slices.Equal(woken, tc.want) {
			t.Errorf("%s maps to %v, want %v", name, woken, tc.want)
		}
	}
}

// A platform set that selects by the labels of namespaces is mandatory: no label of a Cluster excludes
// the Cluster from it.
func TestLabelsCannotExcludeMandatorySet(t *testing.T) {
	set := aSet("platform", "mandatory", nil, addonsv1.NamespaceSelector{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"customer": "true"}},
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "blue", Labels: map[string]string{"customer": "true"}, Annotations: map[string]string{addonsv1.AllowFromAnnotation: "platform"},
	}}
	for _, labels := range []map[string]string{nil, {}, {"modules": "none"}} {
		got, err := selects(set, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "c", Labels: labels}}, namespace)
		if err != nil || got != selected {
			t.Errorf("selects() = %s, %v with labels %v", got, err, labels)
		}
	}
}

// A set of another tenant with an invalid selector is an error only for Clusters whose namespace allows
// the set.
func TestInvalidSelectorsOfOthers(t *testing.T) {
	invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	byCluster := aSet("red", "by-cluster", nil, addonsv1.NamespaceSelector{Selector: &metav1.LabelSelector{}})
	byCluster.Spec.ClusterSelector = invalid
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "c"}}
	namespace := func(allowed string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue", Annotations: map[string]string{addonsv1.AllowFromAnnotation: allowed}}}
	}
	for _, set := range []*addonsv1.NovaModuleSet{byCluster, aSet("red", "by-namespace", nil, addonsv1.NamespaceSelector{Selector: invalid})} {
		if got, err := selects(set, cluster, namespace("platform")); err != nil || got != unselected {
			t.Errorf("selects() of %s = %s, %v without permission", set.Name, got, err)
		}
		if got, err := selects(set, cluster, namespace("red")); err == nil || got != unselected {
			t.Errorf("selects() of %s = %s, %v with permission", set.Name, got, err)
		}
	}
}
