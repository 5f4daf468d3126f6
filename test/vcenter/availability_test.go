package vcenter_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// As many VMs as hosts, which a rule keeps apart: no host is left for the VM of a host
// that dies, and none for that of a host in maintenance. Without the rule HA restarts
// it, and DRS moves it.
func TestRulesBindHosts(t *testing.T) {
	for _, withRule := range []bool{true, false} {
		t.Run(fmt.Sprintf("rule=%t", withRule), func(t *testing.T) {
			b := start(t, vcenter.Options{Inventory: vcenter.Inventory{Hosts: 3}})
			rule := &types.ClusterAntiAffinityRuleSpec{ClusterRuleInfo: types.ClusterRuleInfo{Name: "apart", Enabled: ptr.To(true)}}
			for i := range 3 {
				vm := b.clone(fmt.Sprintf("vm-%d", i), b.cloneSpec())
				b.done(vm.PowerOn(b.ctx))
				rule.Vm = append(rule.Vm, vm.Reference())
			}
			if withRule {
				cluster, err := b.finder.ClusterComputeResource(b.ctx, "DC0_C0")
				b.Expect(err).NotTo(HaveOccurred())
				b.done(cluster.Reconfigure(b.ctx, &types.ClusterConfigSpecEx{RulesSpec: []types.ClusterRuleSpec{{
					ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd}, Info: rule,
				}}}, true))
			}
			busy := b.vmInfo("vm-1").Host
			if withRule {
				b.Expect(b.server.EnterMaintenance(busy)).To(MatchError(ContainSubstring("vm-1")))
				b.Expect(b.vmInfo("vm-1").Host).To(Equal(busy))
			} else {
				b.Expect(b.server.EnterMaintenance(busy)).To(Succeed())
				b.Expect(b.vmInfo("vm-1").Host).NotTo(Equal(busy))
				b.Expect(b.vmInfo("vm-1").PoweredOn).To(BeTrue())
			}
			b.Expect(b.server.FailHost(b.vmInfo("vm-0").Host)).To(Succeed())
			b.Expect(b.vmInfo("vm-0").PoweredOn).To(Equal(!withRule), "HA obeys the rule")
		})
	}
}

// Changes are reported as late as the options say, and data of guests later still.
func TestUpdatesAreLate(t *testing.T) {
	const update, guest = 700 * time.Millisecond, 1500 * time.Millisecond
	b := start(t, vcenter.Options{UpdateDelay: update, GuestDelay: guest})
	vm := b.clone("late", b.cloneSpec())
	s := b.watchContainer(b.login(b.server.Userinfo()), []string{"runtime.powerState", "guest.hostName"})
	began := time.Now()
	b.done(vm.PowerOn(b.ctx))
	_, at := s.next(b, vm.Reference(), "runtime.powerState")
	for value := any(types.VirtualMachinePowerStatePoweredOff); value != types.VirtualMachinePowerStatePoweredOn; {
		value, at = s.next(b, vm.Reference(), "runtime.powerState")
	}
	b.Expect(at.Sub(began)).To(BeNumerically(">=", update))
	began = time.Now()
	b.Expect(b.server.SetGuestHostName(b.vmInfo("late").BIOSUUID, "node-1")).To(Succeed())
	_, at = s.next(b, vm.Reference(), "guest.hostName")
	b.Expect(at.Sub(began)).To(BeNumerically(">=", guest+update))
}
