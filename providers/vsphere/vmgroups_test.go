package vsphere

import (
	"cmp"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// addGroups creates a DRS group of all hosts except for the first, an empty
// group of VMs, and a rule that DRS and HA should keep these VMs on these
// hosts.
func (b *bed) addGroups(hostGroup, vmGroup string) *object.ClusterComputeResource {
	b.t.Helper()
	cluster, err := b.finder().ClusterComputeResource(b.ctx(), "DC0_C0")
	b.Expect(err).NotTo(HaveOccurred())
	hosts, err := cluster.Hosts(b.ctx())
	b.Expect(err).NotTo(HaveOccurred())
	group := &types.ClusterHostGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: hostGroup}}
	for _, host := range hosts[1:] {
		group.Host = append(group.Host, host.Reference())
	}
	add := types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd}
	b.wait(cluster.Reconfigure(b.ctx(), &types.ClusterConfigSpecEx{
		GroupSpec: []types.ClusterGroupSpec{
			{ArrayUpdateSpec: add, Info: group},
			{ArrayUpdateSpec: add, Info: &types.ClusterVmGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: vmGroup}}},
		},
		RulesSpec: []types.ClusterRuleSpec{{ArrayUpdateSpec: add, Info: &types.ClusterVmHostRuleInfo{
			ClusterRuleInfo: types.ClusterRuleInfo{Name: vmGroup, Enabled: ptr.To(true), Mandatory: ptr.To(false)},
			VmGroupName:     vmGroup, AffineHostGroupName: hostGroup,
		}}},
	}, true))
	return cluster
}

// vmsOf returns the VMs of a DRS group.
func (b *bed) vmsOf(cluster *object.ClusterComputeResource, name string) (vms []ref) {
	b.t.Helper()
	config, err := cluster.Configuration(b.ctx())
	b.Expect(err).NotTo(HaveOccurred())
	for _, group := range config.Group {
		if g, ok := group.(*types.ClusterVmGroup); ok && g.Name == name {
			return g.Vm
		}
	}
	b.t.Fatalf("no group %s of VMs", name)
	return nil
}

// A VM whose host enters maintenance mode stays on the hosts of its host
// group, because it is in the group of VMs that a rule binds to them.
func TestVMGroup(t *testing.T) {
	b := newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{Hosts: 3}})
	cluster := b.addGroups("rack", "rack-vms")
	other := b.vm(vcenter.DefaultTemplate).Reference()
	b.wait(cluster.Reconfigure(b.ctx(), &types.ClusterConfigSpecEx{GroupSpec: []types.ClusterGroupSpec{{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationEdit},
		Info:            &types.ClusterVmGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: "rack-vms"}, Vm: []ref{other}},
	}}}, true))
	b.cluster.Spec.FailureDomains = []vspherev1.NovaVSphereFailureDomain{
		{FailureDomain: infrav1.FailureDomain{Name: "a"}, Placement: vspherev1.NovaVSpherePlacement{ComputeCluster: "DC0_C0", HostGroup: "rack", VMGroup: "rack-vms"}},
	}
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	m, second := b.machine("m"), b.machine("second")
	inZone := createOptions
	inZone.Zone = "a"
	for _, m := range []*vspherev1.NovaVSphereMachine{m, second} {
		b.Expect(b.connect(m).Create(b.ctx(), m, inZone)).To(Succeed())
	}
	b.waitForState(m, hypervisor.Running)
	b.waitForState(second, hypervisor.Running)
	b.vc.ResetRequests()
	b.syncAll(m, second)
	b.Expect(b.vc.Requests()["ReconfigureComputeResource_Task"]).To(BeNumerically("<=", 2))
	b.Expect(b.vmsOf(cluster, "rack-vms")).To(ConsistOf(other, b.vm("m").Reference(), b.vm("second").Reference()))

	b.Expect(b.vc.EnterMaintenance(b.vmNamed("m")[0].Host)).To(Succeed())
	b.Expect(b.vmNamed("m")[0].Host).NotTo(Equal("DC0_C0_H0"), "it is not in the group of hosts")
	b.syncAll(m, second)

	b.destroyed(markDeleting(m))
	b.Expect(b.vmsOf(cluster, "rack-vms")).To(ConsistOf(other, b.vm("second").Reference()))
}

// After a change of the failure domain existing VMs are added to the new group and stay in
// the old one.
func TestVMGroupChanges(t *testing.T) {
	b := newBed(t)
	cluster := b.addGroups("rack", "rack-vms")
	b.addGroups("row", "row-vms")
	place := func(hostGroup, vmGroup string) {
		b.cluster.Spec.FailureDomains = []vspherev1.NovaVSphereFailureDomain{{
			FailureDomain: infrav1.FailureDomain{Name: "a"},
			Placement:     vspherev1.NovaVSpherePlacement{ComputeCluster: "DC0_C0", HostGroup: hostGroup, VMGroup: vmGroup},
		}}
		b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	}
	place("rack", "rack-vms")
	m := b.machine("m")
	inZone := createOptions
	inZone.Zone = "a"
	b.Expect(b.connect(m).Create(b.ctx(), m, inZone)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
	b.syncAll(m)
	place("row", "row-vms")
	b.syncAll(m)
	vm := b.vm("m").Reference()
	b.Expect(b.vmsOf(cluster, "row-vms")).To(ConsistOf(vm))
	b.Expect(b.vmsOf(cluster, "rack-vms")).To(ConsistOf(vm))
}

// If the group was deleted after the VM was created, the machine has a
// message.
func TestVMGroupIsDeleted(t *testing.T) {
	b := newBed(t)
	cluster := b.addGroups("rack", "rack-vms")
	m := b.machine("m")
	m.Spec.Placement.HostGroup, m.Spec.Placement.VMGroup = "rack", "rack-vms"
	b.startAll(m)
	b.wait(cluster.Reconfigure(b.ctx(), &types.ClusterConfigSpecEx{GroupSpec: []types.ClusterGroupSpec{{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationRemove, RemoveKey: "rack-vms"},
		Info:            &types.ClusterVmGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: "rack-vms"}},
	}}}, true))
	b.Eventually(func(g Gomega) {
		vm, err := b.observe(m)
		if err = cmp.Or(err, vm.LastFailure); err == nil {
			g.Expect(vm.OutOfSync).To(ContainSubstring("the VM group rack-vms"))
			g.Expect(b.sync(m, false)).To(Succeed())
			err = b.failure(m)
		}
		g.Expect(err).To(MatchError(ContainSubstring(`placement.vmGroup "rack-vms" does not exist in the compute cluster`)))
	}).Should(Succeed())
}
