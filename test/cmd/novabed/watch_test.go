package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func node(ready corev1.ConditionStatus) corev1.Node {
	return corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func TestMilestones(t *testing.T) {
	yes := true
	var s snapshot
	steps := []func(){
		func() {},
		func() { s.cluster.Status.Initialization.InfrastructureProvisioned = &yes },
		func() {
			m := clusterv1.Machine{}
			m.Status.Initialization.InfrastructureProvisioned = &yes
			s.machines = append(s.machines, clusterv1.Machine{}, m)
		},
		func() { s.cluster.Status.Initialization.ControlPlaneInitialized = &yes },
		func() {
			s.nodes = []corev1.Node{node(corev1.ConditionTrue), node(corev1.ConditionFalse), node(corev1.ConditionTrue)}
		},
	}
	for reached, step := range steps {
		step()
		for i, stone := range milestones("vCenter", 2) {
			if got, want := stone.reached(s), i < reached; got != want {
				t.Errorf("after step %d: %q reached = %t, want %t", reached, stone.name, got, want)
			}
		}
	}
}

func TestTroubles(t *testing.T) {
	m := &clusterv1.Machine{}
	m.Name = "demo-1"
	at := metav1.NewTime(time.Unix(0, 0))
	m.Status.Conditions = []metav1.Condition{
		{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "NotReady", Message: "* The VM boots\n* No node yet", LastTransitionTime: at},
		{Type: clusterv1.InfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready", Message: "All is well", LastTransitionTime: at},
		{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: "NotPaused", Message: "Not paused", LastTransitionTime: at},
		{Type: clusterv1.DeletingCondition, Status: metav1.ConditionTrue, Reason: "Draining", Message: "Drains the node", LastTransitionTime: at},
	}
	got := troubles(m)
	want := []string{
		"Machine demo-1: Ready=False (NotReady): * The VM boots * No node yet",
		"Machine demo-1: Deleting=True (Draining): Drains the node",
	}
	if len(got) != len(want) {
		t.Fatalf("troubles = %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("trouble %d = %q, want %q", i, got[i], want[i])
		}
	}
}
