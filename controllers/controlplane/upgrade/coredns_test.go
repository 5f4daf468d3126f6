package upgrade

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

func TestSpread(t *testing.T) {
	pod := func(name, node string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{NodeName: node},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	n1 := facts.Node{Name: "n1", Ready: true, Schedulable: true}
	n2 := facts.Node{Name: "n2", Ready: true, Schedulable: true}
	for name, tc := range map[string]struct {
		reason string
		pods   []corev1.Pod
		nodes  []facts.Node
		move   string
		done   bool
	}{
		"Together": {
			reason: "one of two on the same node moves",
			pods:   []corev1.Pod{pod("a", "n1", corev1.ConditionTrue), pod("b", "n1", corev1.ConditionTrue)},
			nodes:  []facts.Node{n1, n2}, move: "b", done: true,
		},
		"Apart": {
			reason: "they are where they should be",
			pods:   []corev1.Pod{pod("a", "n1", corev1.ConditionTrue), pod("b", "n2", corev1.ConditionTrue)},
			nodes:  []facts.Node{n1, n2}, done: true,
		},
		"OneDown": {
			reason: "nothing moves while only one answers",
			pods:   []corev1.Pod{pod("a", "n1", corev1.ConditionTrue), pod("b", "n1", corev1.ConditionFalse)},
			nodes:  []facts.Node{n1, n2},
		},
		"NowhereToGo": {
			reason: "a node that takes no pods is no place to go",
			pods:   []corev1.Pod{pod("a", "n1", corev1.ConditionTrue), pod("b", "n1", corev1.ConditionTrue)},
			nodes:  []facts.Node{n1, {Name: "n2", Ready: true}, {Name: "n3", Schedulable: true}},
		},
		"Single": {
			reason: "someone runs only one, and that is theirs to say",
			pods:   []corev1.Pod{pod("a", "n1", corev1.ConditionTrue)}, nodes: []facts.Node{n1, n2}, done: true,
		},
		"None": {
			reason: "someone runs none", nodes: []facts.Node{n1, n2}, done: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			move, done := spread(tc.pods, tc.nodes)
			got := ""
			if move != nil {
				got = move.Name
			}
			if got != tc.move || done != tc.done {
				t.Errorf("%s: want %q %t, got %q %t", tc.reason, tc.move, tc.done, got, done)
			}
		})
	}
}
