package vsphere

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// controlPlane creates the VMs of a control plane in a compute cluster with a
// number of hosts, with all defaults.
func controlPlane(t *testing.T, hosts int) (*bed, []*vspherev1.NovaVSphereMachine) {
	t.Helper()
	b := newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{Hosts: hosts}})
	var machines []*vspherev1.NovaVSphereMachine
	for i := range 3 {
		m := b.machine(fmt.Sprintf("cp-%d", i))
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
		machines = append(machines, m)
	}
	b.startAll(machines...)
	b.syncAll(machines...)
	return b, machines
}

// vSphere HA restarts the VM of a control plane when its host fails, with and
// without a spare host for the members of the control plane.
func TestHostDies(t *testing.T) {
	for hosts, rules := range map[int]int{3: 0, 4: 3} {
		t.Run(fmt.Sprintf("%d hosts", hosts), func(t *testing.T) {
			b, machines := controlPlane(t, hosts)
			b.Expect(b.members(machines[0])).To(HaveLen(rules))
			lost := b.vmNamed("cp-0")[0].Host
			b.Expect(b.vc.FailHost(lost)).To(Succeed())
			for _, m := range machines {
				b.waitForState(m, hypervisor.Running)
				b.Expect(b.vmNamed(m.Name)[0].Host).NotTo(Equal(lost))
				b.Expect(b.vmNamed(m.Name)[0].PoweredOn).To(BeTrue())
			}
			b.syncAll(machines...)
			b.Eventually(func() []string { b.syncAll(machines...); return b.members(machines[0]) }).
				Should(BeEmpty(), "the next host that dies needs a host for its VM too")
			b.Expect(b.vc.SetHostConnected(lost, true)).To(Succeed())
			b.Eventually(func() []string { b.syncAll(machines...); return b.members(machines[0]) }).Should(HaveLen(rules))
		})
	}
}

// A host can enter maintenance mode.
func TestMaintenance(t *testing.T) {
	for _, hosts := range []int{3, 4} {
		t.Run(fmt.Sprintf("%d hosts", hosts), func(t *testing.T) {
			b, machines := controlPlane(t, hosts)
			b.Expect(b.vc.EnterMaintenance(b.vmNamed("cp-0")[0].Host)).To(Succeed())
			b.syncAll(machines...)
		})
	}
}

// By default, machines of a control plane are kept on different hosts. Workers
// are not, because there are more workers than hosts.
func TestAntiAffinityOf(t *testing.T) {
	labeled := func(labels map[string]string, mode infrav1.AntiAffinity) *vspherev1.NovaVSphereMachine {
		m := &vspherev1.NovaVSphereMachine{}
		m.Labels, m.Spec.AntiAffinity = labels, mode
		return m
	}
	controlPlane, worker := map[string]string{clusterv1.MachineControlPlaneLabel: ""}, map[string]string{clusterv1.MachineDeploymentNameLabel: "md"}
	tests := []struct {
		name    string
		machine *vspherev1.NovaVSphereMachine
		cluster infrav1.AntiAffinity
		want    infrav1.AntiAffinity
	}{
		{"control plane", labeled(controlPlane, ""), "", infrav1.AntiAffinityPreferred},
		{"worker", labeled(worker, ""), "", infrav1.AntiAffinityNone},
		{"cluster", labeled(worker, ""), infrav1.AntiAffinityRequired, infrav1.AntiAffinityRequired},
		{"machine", labeled(worker, infrav1.AntiAffinityPreferred), infrav1.AntiAffinityRequired, infrav1.AntiAffinityPreferred},
		{"control plane of a cluster", labeled(controlPlane, ""), infrav1.AntiAffinityNone, infrav1.AntiAffinityNone},
	}
	for _, tt := range tests {
		if got := infrav1.AntiAffinityOf(tt.machine, tt.machine.Spec.AntiAffinity, tt.cluster); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}
