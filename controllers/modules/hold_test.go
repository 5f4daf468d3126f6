package modules

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

func TestSweep(t *testing.T) {
	back := fmt.Sprintf(heldBack, "v1.37.0", "cni (<1.37)")
	cases := map[string]struct {
		annotation, value string
		swept             bool
	}{
		"SetThere":          {holdAnnotation("base"), heldAhead, false},
		"SetElsewhereThere": {holdAnnotation("team.base"), back, false},
		"Ahead":             {holdAnnotation("gone"), heldAhead, true},
		"Back":              {holdAnnotation("team.gone"), back, true},
		"SomebodyElses":     {holdAnnotation("gone"), "Ask the team first", false},
		"AlmostOurs":        {holdAnnotation("gone"), back + " yet", false},
		"Empty":             {holdAnnotation("gone"), "", false},
		"AnotherHook":       {clusterv1.BeforeClusterUpgradeHookAnnotationPrefix, heldAhead, false},
		"AnotherAnnotation": {"example.com/gone", heldAhead, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tc.annotation: tc.value}}}
			sweep(cluster, map[string]bool{"base": true, "team.base": true})
			if _, left := cluster.Annotations[tc.annotation]; left == tc.swept {
				t.Errorf("left: %v", slices.Collect(maps.Keys(cluster.Annotations)))
			}
		})
	}
}

func TestSweepConditions(t *testing.T) {
	cluster := &clusterv1.Cluster{}
	for _, c := range []string{clusterv1.AvailableCondition, addonsv1.ClusterCondition("base"), addonsv1.ClusterCondition("gone"), addonsv1.ClusterCondition("team.base")} {
		conditions.Set(cluster, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: "Test"})
	}
	got := sweep(cluster, map[string]bool{"base": true})
	if want := []string{addonsv1.ClusterCondition("gone"), addonsv1.ClusterCondition("team.base")}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("sweep() = %v, want %v", got, want)
	}
	if len(cluster.Status.Conditions) != 2 {
		t.Errorf("left: %v", cluster.Status.Conditions)
	}
}
