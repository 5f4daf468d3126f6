package inplace

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// controlPlaneMachine returns a machine with the status of some conditions.
func controlPlaneMachine(name string, status map[string]metav1.ConditionStatus) *clusterv1.Machine {
	m := &clusterv1.Machine{}
	m.Namespace, m.Name, m.Spec.ClusterName = "tenants", name, "blue"
	m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: "", clusterv1.ClusterNameLabel: "blue"}
	for condition, is := range status {
		conditions.Set(m, metav1.Condition{Type: condition, Status: is, Reason: "Test"})
	}
	return m
}

func TestWaitForOthers(t *testing.T) {
	const api, pod, member = controlplanev1.MachineAPIServerPodHealthyCondition, controlplanev1.MachineEtcdPodHealthyCondition, controlplanev1.MachineEtcdMemberHealthyCondition
	fit := map[string]metav1.ConditionStatus{api: metav1.ConditionTrue, pod: metav1.ConditionTrue, member: metav1.ConditionTrue}
	without := func(condition string, is metav1.ConditionStatus) map[string]metav1.ConditionStatus {
		changed := map[string]metav1.ConditionStatus{api: metav1.ConditionTrue, pod: metav1.ConditionTrue, member: metav1.ConditionTrue}
		changed[condition] = is
		return changed
	}
	const waits = "waiting for control plane machine blue-2, whose condition "
	for name, tc := range map[string]struct {
		reason     string
		own, other map[string]metav1.ConditionStatus
		want       string
	}{
		"AllServe":     {reason: "nothing fails", own: fit, other: fit},
		"NoEtcd":       {reason: "external etcd has no conditions", own: map[string]metav1.ConditionStatus{api: metav1.ConditionTrue}, other: map[string]metav1.ConditionStatus{api: metav1.ConditionTrue}},
		"APIServer":    {reason: "no API server would serve", own: fit, other: without(api, metav1.ConditionFalse), want: waits + api + " is not True"},
		"Pod":          {reason: "etcd could lose its quorum", own: fit, other: without(pod, metav1.ConditionFalse), want: waits + pod + " is not True"},
		"Member":       {reason: "etcd could lose its quorum", own: fit, other: without(member, metav1.ConditionFalse), want: waits + member + " is not True"},
		"Unknown":      {reason: "its node may be off", own: fit, other: without(api, metav1.ConditionUnknown), want: waits + api + " is not True"},
		"OwnFails":     {reason: "the change may repair it", own: without(api, metav1.ConditionFalse), other: without(api, metav1.ConditionFalse)},
		"OnlyOwnFails": {reason: "the others serve", own: without(member, metav1.ConditionFalse), other: fit},
	} {
		t.Run(name, func(t *testing.T) {
			own := controlPlaneMachine("blue-1", tc.own)
			all := []clusterv1.Machine{*own, *controlPlaneMachine("blue-2", tc.other)}
			if got := waitForOthers(own, all); got != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// A control plane machine that failed during the drain of another one keeps it from
// being changed until it serves again.
func TestDrainWaitsForOthers(t *testing.T) {
	r := newDrainRig(t, false)
	machine := &clusterv1.Machine{}
	if err := r.management.Get(t.Context(), client.ObjectKey{Namespace: "tenants", Name: "blue-1"}, machine); err != nil {
		t.Fatal(err)
	}
	machine.Labels = controlPlaneLabels
	if err := r.management.Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	r.budget = true
	r.update()
	const member = controlplanev1.MachineEtcdMemberHealthyCondition
	other := controlPlaneMachine("blue-2", map[string]metav1.ConditionStatus{member: metav1.ConditionFalse})
	if err := r.management.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	r.budget = false
	for range 3 {
		r.update()
	}
	if got := r.update(); got.Message != "waiting for control plane machine blue-2, whose condition "+member+" is not True" || r.hasSettings(t) || r.hasPod(t) {
		t.Fatalf("%q, settings: %t, pod: %t", got.Message, r.hasSettings(t), r.hasPod(t))
	}
	conditions.Set(other, metav1.Condition{Type: member, Status: metav1.ConditionTrue, Reason: "Test"})
	if err := r.management.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	r.complete(t)
}
