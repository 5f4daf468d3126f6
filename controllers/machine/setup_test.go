package machine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
)

func TestPredicates(t *testing.T) {
	machine := map[string]struct {
		change func(*vspherev1.NovaVSphereMachine)
		want   bool
	}{
		"Nothing": {func(*vspherev1.NovaVSphereMachine) {}, false},
		"Words": {func(m *vspherev1.NovaVSphereMachine) {
			m.Status.Conditions = []metav1.Condition{{Type: clusterv1.ReadyCondition, Message: "other words"}}
		}, false},
		"Host":   {func(m *vspherev1.NovaVSphereMachine) { m.Status.Host = "b" }, true},
		"Domain": {func(m *vspherev1.NovaVSphereMachine) { m.Status.FailureDomain = "b" }, true},
		"Addresses": {func(m *vspherev1.NovaVSphereMachine) {
			m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.2"}}
		}, true},
	}
	for name, tc := range machine {
		t.Run(name, func(t *testing.T) {
			was := &vspherev1.NovaVSphereMachine{Status: infrav1.MachineStatus{
				Host: "a", FailureDomain: "a",
				Addresses: []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.1"}},
			}}
			is := was.DeepCopy()
			tc.change(is)
			if got := published.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != tc.want {
				t.Errorf("Update() = %t, want %t", got, tc.want)
			}
		})
	}
	owner := map[string]struct {
		change func(*clusterv1.Machine)
		want   bool
	}{
		"OwnerNothing": {func(*clusterv1.Machine) {}, false},
		"OwnerLabel":   {func(m *clusterv1.Machine) { m.Labels = map[string]string{infrav1.HostLabel: "b"} }, false},
		"OwnerJoined":  {func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "node" }, true},
		"OwnerDomain":  {func(m *clusterv1.Machine) { m.Spec.FailureDomain = "b" }, true},
	}
	for name, tc := range owner {
		t.Run(name, func(t *testing.T) {
			was := &clusterv1.Machine{}
			is := was.DeepCopy()
			tc.change(is)
			if got := relevantMachineChange.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != tc.want {
				t.Errorf("Update() = %t, want %t", got, tc.want)
			}
		})
	}
	t.Run("InfraClusterPinned", func(t *testing.T) {
		was := &vspherev1.NovaVSphereCluster{}
		is := was.DeepCopy()
		is.Annotations = map[string]string{infrav1.HypervisorIDAnnotation: "a"}
		if !infraClusterRecovered.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) {
			t.Error("Update() = false, want true")
		}
	})
}
