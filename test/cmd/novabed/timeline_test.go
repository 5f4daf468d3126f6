package main

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// TestTimelineDividesTheWhole follows two machines and fails when a part of the
// time is lost or counted twice.
func TestTimelineDividesTheWhole(t *testing.T) {
	g := NewWithT(t)
	machine := func(name string, controlPlane, provisioned bool) clusterv1.Machine {
		m := clusterv1.Machine{}
		m.Name, m.Spec.InfrastructureRef.Name = name, name
		if controlPlane {
			m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
		}
		m.Status.Initialization.InfrastructureProvisioned = ptr.To(provisioned)
		return m
	}
	node := func(name string, ready corev1.ConditionStatus) corev1.Node {
		n := corev1.Node{}
		n.Name = name
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	on := map[string]bool{"cp": true}
	line := &timeline{}
	s := snapshot{machines: []clusterv1.Machine{machine("cp", true, false)}}
	line.note(s, nil, 1*time.Second)
	line.note(s, on, 61*time.Second)
	s.machines = []clusterv1.Machine{machine("cp", true, true), machine("worker", false, false)}
	line.note(s, on, 70*time.Second)
	s.cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	s.nodes = []corev1.Node{node("cp", corev1.ConditionFalse)}
	line.note(s, on, 90*time.Second)
	s.nodes = []corev1.Node{node("cp", corev1.ConditionTrue)}
	line.note(s, on, 95*time.Second)
	on["worker"] = true
	s.machines[1] = machine("worker", false, true)
	s.nodes = append(s.nodes, node("worker", corev1.ConditionTrue))
	line.note(s, on, 160*time.Second)
	line.note(s, on, 200*time.Second)

	g.Expect(line.phases()).To(Equal([]phase{
		{"create the first machine", 1},
		{"clone it", 60},
		{"boot it until its address is known", 9},
		{"initialize the control plane", 20},
		{"control plane node 1 Ready", 5},
		{"worker node 1 Ready", 65},
	}))
	g.Expect(line.machines[1].at).To(HaveKeyWithValue(pointMade, 70*time.Second))
}
