package plan

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

func TestHARules(t *testing.T) {
	g := NewWithT(t)
	vm := &pve.Resource{Type: "qemu", VMID: 100, Node: "a"}
	member := func(vmid int, tags, state string) *pve.Resource {
		return &pve.Resource{Type: "qemu", VMID: vmid, Tags: "nova-owner-" + machineID.String() + ";" + tags, HAState: state}
	}
	site := &Site{
		Nodes: []*pve.Resource{{Node: "c"}, {Node: "a", Status: "online"}, {Node: "b", Status: "offline"}},
		Guests: []*pve.Resource{
			vm, member(101, "nova-group-g;nova-ha-x", "started"), member(102, "nova-group-g", "started"), member(103, "nova-group-g;nova-ha-x", ""),
			member(104, "nova-group-h;nova-ha-x", "started"),
		},
	}
	mark, none := &Mark{ID: machineID}, &Bounds{}
	free := &Settings{}
	rules, err := free.HARules(site, none, mark, vm, "", "8.4.1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(rules).To(BeEmpty(), "the VM can be on any node")

	rules, err = free.HARules(site, none, mark, vm, "g", "9.1.2")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(rules).To(HaveLen(1))
	g.Expect(rules[0].Name).To(Equal("nova-g"))
	g.Expect(rules[0].Form.Encode()).To(Equal("affinity=negative&resources=vm%3A100%2Cvm%3A101&type=resource-affinity"))

	full := &Site{Nodes: site.Nodes[:1], Guests: site.Guests}
	_, err = free.HARules(full, none, mark, vm, "g", "9.1.2")
	g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.InsufficientResourcesReason), "the HA manager rejects a rule for two VMs on one node")

	limited := &Settings{NovaProxmoxPlacement: proxmoxv1.NovaProxmoxPlacement{Nodes: []string{"b", "a", "lost"}}}
	rules, err = limited.HARules(site, none, mark, vm, "", "9.1.2")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(rules).To(HaveLen(1))
	g.Expect(rules[0].Name).To(Equal("nova-" + machineID.String()))
	g.Expect(rules[0].Form.Encode()).To(Equal("nodes=a%2Cb&resources=vm%3A100&strict=1&type=node-affinity"))

	bounds := &Bounds{NovaProxmoxBounds: proxmoxv1.NovaProxmoxBounds{Nodes: []string{"c"}}}
	rules, err = free.HARules(site, bounds, mark, vm, "", "10.0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(rules[0].Form.Get("nodes")).To(Equal("c"))
	_, err = limited.HARules(site, bounds, mark, vm, "", "9.0.3")
	g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.PlacementNotFoundReason))

	for _, wrong := range []error{
		second(limited.HARules(site, none, mark, vm, "", "8.4.1")), second(free.HARules(site, none, mark, vm, "g", "8.4.1")), second(free.HARules(site, bounds, mark, vm, "", "")),
	} {
		g.Expect(hypervisor.ReasonFor(wrong, "")).To(Equal(infrav1.InvalidSpecReason))
	}
}

func second(_ []HARule, err error) error { return err }

// Each setting in the HA manager is part of the mark.
func TestHAMark(t *testing.T) {
	g := NewWithT(t)
	c, m := &proxmoxv1.NovaProxmoxClusterSpec{}, machine()
	g.Expect(HAMark("id", c, m)).To(BeEmpty())
	seen := map[string]bool{}
	for _, h := range []proxmoxv1.NovaProxmoxHighAvailability{
		{MaxRestart: ptr.To[int32](1)}, {MaxRestart: ptr.To[int32](0)}, {MaxRelocate: ptr.To[int32](1)}, {Failback: ptr.To(true)}, {Failback: ptr.To(false)},
	} {
		for _, mode := range []infrav1.AntiAffinity{infrav1.AntiAffinityPreferred, infrav1.AntiAffinityRequired} {
			m.Spec.HighAvailability, m.Spec.AntiAffinity = h, mode
			seen[HAMark("id", c, m)] = true
		}
	}
	g.Expect(seen).To(HaveLen(10))
	g.Expect(HAResource(&proxmoxv1.NovaProxmoxHighAvailability{MaxRelocate: ptr.To[int32](0), Failback: ptr.To(false)}, 7).Encode()).To(Equal("failback=0&max_relocate=0&sid=vm%3A7&state=started"))
}
