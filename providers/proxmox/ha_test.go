package proxmox

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/site"
	conformance "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

// haRole is role with the privilege that the HA manager needs.
const haRole = role + "HA"

// newHAManager returns the manager of a machine that is highly available, on one of two nodes.
func newHAManager(t *testing.T) *manager {
	t.Helper()
	m := newManager(t)
	m.Expect(m.server.SetACL(leastUser, []access.Entry{{Path: "/", Role: haRole}})).To(Succeed())
	m.Expect(m.server.SetTiming(cluster.TimeHA, 100*time.Millisecond)).To(Succeed())
	m.machine.Spec.HighAvailability = proxmoxv1.NovaProxmoxHighAvailability{MaxRestart: ptr.To[int32](2)}
	m.machine.Spec.Placement.Nodes = []string{"pve2", "pve1"}
	m.machine.Spec.AntiAffinity = infrav1.AntiAffinityRequired
	m.machine.Labels[clusterv1.MachineDeploymentNameLabel] = "workers"
	m.joined = true
	return m
}

// sid is the ID of the VM in the HA manager.
func (m *manager) sid() string { return plan.HAResourceID(m.candidates()[0]) }

// ha returns the entries of a list of the HA manager by their names.
func (m *manager) ha(list, name string) map[string]map[string]any {
	out := map[string]map[string]any{}
	found, ok := m.must(http.MethodGet, "/cluster/ha/"+list, nil).([]map[string]any)
	m.Expect(ok).To(BeTrue())
	for _, entry := range found {
		out[fmt.Sprint(entry[name])] = entry
	}
	return out
}

// synced takes steps until no part of the VM differs from the machine.
func (m *manager) synced() {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		vm := m.step(g)
		g.Expect(vm.State).To(Equal(hypervisor.Running))
		g.Expect(m.machine.Spec.ProviderID).NotTo(BeEmpty())
		g.Expect(vm.ToSync).To(BeEmpty())
	}).Should(Succeed())
}

// peer returns the manager of a machine of the same group, whose VM is in the HA manager.
func (m *manager) peer() *manager {
	m.t.Helper()
	other := m.another("other")
	other.machine.Spec.ProviderID = ""
	other.synced()
	return other
}

// nodeRule and groupRule are the rules of a machine and of its group.
func (m *manager) nodeRule() map[string]any {
	for name, rule := range m.ha("rules", "rule") {
		if rule["type"] == "node-affinity" && rule["resources"] == m.sid() {
			m.Expect(name).To(HavePrefix("nova-"))
			return rule
		}
	}
	return nil
}

func (m *manager) groupRule() map[string]any {
	for _, rule := range m.ha("rules", "rule") {
		if rule["type"] == "resource-affinity" {
			return rule
		}
	}
	return nil
}

// A machine is added to the HA manager with its rules once its node has joined, follows
// changes of its spec without a request of an idle machine, and is removed again.
func TestHighAvailability(t *testing.T) {
	m := newHAManager(t)
	m.joined = false
	m.up()
	m.Expect(m.ha("resources", "sid")).To(BeEmpty(), "its node has not joined")
	m.Expect(m.step(m).OutOfSync).To(BeEmpty(), "the condition has the reason WaitingForNode")
	m.joined = true
	m.synced()
	m.Expect(m.ha("resources", "sid")).To(HaveKeyWithValue(m.sid(), And(HaveKeyWithValue("state", "started"), HaveKeyWithValue("max_restart", 2))))
	m.Expect(m.nodeRule()).To(And(HaveKeyWithValue("nodes", "pve1,pve2"), HaveKeyWithValue("strict", "1")))
	m.Expect(m.groupRule()).To(BeNil(), "a rule of one VM is rejected")

	other := m.peer()
	m.Expect(m.groupRule()).To(And(HaveKeyWithValue("affinity", "negative"), HaveKeyWithValue("resources", And(ContainSubstring(m.sid()), ContainSubstring(other.sid())))))
	m.server.ResetRequests()
	m.Consistently(func() []string {
		var sent []string
		for name := range m.server.Requests() {
			if strings.Contains(name, "/ha/") || strings.HasSuffix(name, "/config") {
				sent = append(sent, name)
			}
		}
		m.step(m)
		return sent
	}, "500ms", interval).Should(BeEmpty())

	m.machine.Spec.HighAvailability.MaxRestart = ptr.To[int32](0)
	m.synced()
	m.Expect(m.ha("resources", "sid")).To(HaveKeyWithValue(m.sid(), HaveKeyWithValue("max_restart", 0)))
	m.Expect(m.groupRule()).To(HaveKeyWithValue("resources", ContainSubstring(m.sid())))
	m.Expect(m.nodeRule()).NotTo(BeNil())

	// A user removes the VM from the HA manager.
	m.must(http.MethodDelete, "/cluster/ha/resources/"+m.sid(), nil)
	m.Eventually(func(g Gomega) {
		m.step(g)
		g.Expect(m.ha("resources", "sid")).To(HaveKey(m.sid()))
	}).Should(Succeed())

	m.machine.Spec.HighAvailability = proxmoxv1.NovaProxmoxHighAvailability{}
	m.synced()
	m.Expect(m.ha("resources", "sid")).To(And(HaveLen(1), HaveKey(other.sid())))
	m.Expect(m.nodeRule()).To(BeNil())
	m.Expect(m.groupRule()).To(HaveKeyWithValue("resources", other.sid()))
	m.Expect(m.find(strconv.Itoa(m.candidates()[0])).Options["tags"]).NotTo(ContainSubstring("nova-ha-"))

	other.delete()
	other.until(hypervisor.Absent)
	m.Expect(m.ha("resources", "sid")).To(BeEmpty())
	m.Expect(m.ha("rules", "rule")).To(BeEmpty())
}

// A manager that crashes at any request to the HA manager is followed by another one.
func TestHighAvailabilityAfterCrashes(t *testing.T) {
	m := newHAManager(t)
	m.synced()
	other := m.peer()
	requests := []pvesim.Fault{
		{Method: http.MethodDelete, Path: "cluster/ha/resources/*"}, {Method: http.MethodPost, Path: "cluster/ha/resources"},
		{Method: http.MethodPut, Path: "cluster/ha/rules/*"}, {Method: http.MethodPost, Path: "cluster/ha/rules"},
		{Method: http.MethodPut, Path: "cluster/ha/rules/*", Skip: 1}, {Method: http.MethodPut, Path: "nodes/*/qemu/*/config"},
	}
	for i, fault := range requests {
		for _, after := range []bool{false, true} {
			fault.After, fault.Drop = after, true
			restarts := int32(i + 3)
			if fault.After {
				restarts += int32(len(requests))
			}
			m.machine.Spec.HighAvailability.MaxRestart = &restarts
			m.server.Inject(fault)
			m.Eventually(func(g Gomega) {
				g.Expect(m.connect(g).syncHA(t.Context(), m.machine)).NotTo(Succeed())
			}).Should(Succeed(), "%+v", fault)
			m.server.ClearFaults()
			m.restart()
			// The next manager may know less than the HA manager for some time.
			m.Eventually(func(g Gomega) {
				d := m.connect(g)
				vm, err := d.Observe(t.Context(), m.machine)
				g.Expect(err).NotTo(HaveOccurred())
				if len(vm.ToSync) > 0 {
					g.Expect(d.syncHA(t.Context(), m.machine)).To(Succeed())
				}
				g.Expect(vm.ToSync).To(BeEmpty())
			}).Should(Succeed(), "%+v", fault)
			m.Expect(m.ha("resources", "sid")).To(HaveKeyWithValue(m.sid(), HaveKeyWithValue("max_restart", int(restarts))), "%+v", fault)
			m.Expect(m.nodeRule()).NotTo(BeNil(), "%+v", fault)
			m.Expect(m.groupRule()).To(HaveKeyWithValue("resources", And(ContainSubstring(m.sid()), ContainSubstring(other.sid()))), "%+v", fault)
		}
	}
}

// The HA manager would start a VM again that is powered off. A machine is deleted although a
// user added its VM there, and its guest shuts down by itself.
func TestDeletionOfAVMInTheHAManager(t *testing.T) {
	for name, soft := range map[string]bool{"shutdown": true, "power-off": false} {
		t.Run(name, func(t *testing.T) {
			m := newHAManager(t)
			m.machine.Spec.HighAvailability = proxmoxv1.NovaProxmoxHighAvailability{}
			m.synced()
			m.must(http.MethodPost, "/cluster/ha/resources", map[string]any{"sid": m.sid(), "state": "started"})
			m.Eventually(func(g Gomega) {
				guests := m.connect(g).session.Site().Guests
				g.Expect(guests[slices.IndexFunc(guests, func(r *pve.Resource) bool { return r.VMID == m.candidates()[0] })].HAState).NotTo(BeEmpty())
			}).Should(Succeed())
			m.delete()
			if soft {
				m.Expect(m.connect(m).Shutdown(t.Context(), m.machine)).To(Succeed())
				m.Eventually(func(g Gomega) {
					vm, err := m.connect(g).Observe(t.Context(), m.machine)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(vm.State).To(Equal(hypervisor.Stopped))
				}).Should(Succeed())
			}
			m.until(hypervisor.Absent)
			m.Expect(m.VMs()).To(BeEmpty())
			m.Expect(m.ha("resources", "sid")).To(BeEmpty())
		})
	}
}

// A user without the privilege for the HA manager gets an error, and the VM is kept.
func TestHighAvailabilityWithoutPrivilege(t *testing.T) {
	m := newHAManager(t)
	m.Expect(m.server.SetACL(leastUser, []access.Entry{{Path: "/", Role: role}})).To(Succeed())
	m.joined = false
	m.up()
	m.Eventually(func(g Gomega) {
		err := m.connect(g).syncHA(t.Context(), m.machine)
		g.Expect(err).To(MatchError(ContainSubstring("Sys.Console")))
		g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.PermissionDeniedReason))
	}).Should(Succeed())
	m.Expect(m.VMs()).To(HaveLen(1))
}

// The HA manager does not restart a VM that is in the state error there, until a user resets it.
func TestVMInTheStateErrorOfTheHAManager(t *testing.T) {
	g := NewWithT(t)
	d := &driver{cluster: adapter{}.Cluster()}
	for state, message := range map[string]string{"error": "Set it to disabled, correct the cause", "started": "", "": ""} {
		vm := hypervisor.VM{}
		d.running(adapter{}.Machine(conformance.Fields{}), &view{Found: site.Found{VM: &pve.Resource{Node: "pve1", HAState: state}}}, &vm)
		g.Expect(vm.Host).To(Equal("pve1"))
		if message == "" {
			g.Expect(vm.Message).To(BeEmpty())
			continue
		}
		g.Expect(vm.Message).To(ContainSubstring(message))
	}
}

// The HA manager accepts the start of a VM that it has given up, and does nothing.
func TestStoppedVMInTheStateErrorOfTheHAManager(t *testing.T) {
	m := newHAManager(t)
	m.synced()
	m.Expect(m.server.Cluster.FailHA(m.candidates()[0])).To(Succeed())
	m.Eventually(func(g Gomega) {
		d := m.connect(g)
		vm, err := d.Observe(t.Context(), m.machine)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(vm.State).To(Equal(hypervisor.Stopped))
		err = d.Start(t.Context(), m.machine)
		g.Expect(err).To(MatchError(ContainSubstring("Set it to disabled, correct the cause")))
		g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.HypervisorErrorReason))
	}).Should(Succeed())
	for _, state := range []string{"disabled", "started"} {
		m.must(http.MethodPut, "/cluster/ha/resources/"+m.sid(), map[string]any{"state": state})
	}
	m.synced()
}

// A VM stays in the HA manager as it is while its settings there are invalid.
func TestInvalidSettingsInTheHAManager(t *testing.T) {
	m := newHAManager(t)
	m.synced()
	m.machine.Spec.HighAvailability.MaxRestart = ptr.To[int32](5)
	m.machine.Spec.Placement.Nodes = []string{"gone"}
	m.Eventually(func(g Gomega) {
		g.Expect(m.connect(g).syncHA(t.Context(), m.machine)).To(MatchError(ContainSubstring("none of the nodes")))
	}).Should(Succeed())
	m.Expect(m.ha("resources", "sid")).To(HaveKeyWithValue(m.sid(), HaveKeyWithValue("max_restart", 2)))
	m.Expect(m.nodeRule()).NotTo(BeNil())
}
