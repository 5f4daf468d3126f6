package plan

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// rulesVersion is the first major version of Proxmox VE whose HA manager has rules.
const rulesVersion = 9

// HAResourceID returns the ID of a VM in the HA manager.
func HAResourceID(vmid int) string { return "vm:" + strconv.Itoa(vmid) }

// HAResource returns the parameters of the request that adds a VM to the HA manager.
func HAResource(h *proxmoxv1.NovaProxmoxHighAvailability, vmid int) url.Values {
	form := url.Values{"sid": {HAResourceID(vmid)}, "state": {"started"}}
	for name, value := range map[string]*int32{"max_restart": h.MaxRestart, "max_relocate": h.MaxRelocate} {
		if value != nil {
			form.Set(name, strconv.Itoa(int(*value)))
		}
	}
	if h.Failback != nil {
		form.Set("failback", flag(*h.Failback))
	}
	return form
}

// HAMark returns the hash of the settings of a machine in the HA manager. It is empty if
// the machine has none. The nodes are not part of it: a change of the placement does not
// affect VMs that exist.
func HAMark(clusterID string, c *proxmoxv1.NovaProxmoxClusterSpec, m *proxmoxv1.NovaProxmoxMachine) string {
	if m.Spec.HighAvailability == (proxmoxv1.NovaProxmoxHighAvailability{}) {
		return ""
	}
	group, required := GroupOf(clusterID, c, m)
	if !required {
		group = ""
	}
	return hashed(HAResource(&m.Spec.HighAvailability, 0).Encode(), group)
}

// HARule is a rule of the HA manager.
type HARule struct {
	Name string
	Form url.Values
}

// HARules returns the rules of a VM: one keeps it on the nodes that it can be created on, and
// one keeps the VMs of its group, whose antiAffinity is Required, on different nodes. The
// HA manager would start it on any node otherwise.
func (s *Settings) HARules(site *Site, b *Bounds, mark *Mark, vm *pve.Resource, group, version string) ([]HARule, error) {
	var rules []HARule
	limited := len(s.Nodes) > 0 || len(b.Nodes) > 0
	major, _, _ := strings.Cut(version, ".")
	if n, _ := strconv.Atoi(major); n < rulesVersion && (limited || group != "") {
		return nil, kit.InvalidSpec("the HA manager of Proxmox VE %s has no rules, and could start the VM on any node: upgrade to version %d, or leave out highAvailability, or placement.nodes, bounds.nodes and antiAffinity: Required", version, rulesVersion)
	}
	if limited {
		var nodes []string
		for _, n := range site.Nodes {
			if s.allowsNode(b, n.Node) {
				nodes = append(nodes, n.Node)
			}
		}
		if len(nodes) == 0 {
			return nil, hypervisor.Failure(infrav1.PlacementNotFoundReason, "none of the nodes %q exists and is within the bounds of the identity", s.Nodes)
		}
		slices.Sort(nodes)
		rules = append(rules, HARule{"nova-" + mark.ID.String(), url.Values{
			"type": {"node-affinity"}, "strict": {"1"}, "nodes": {strings.Join(nodes, ",")}, "resources": {HAResourceID(vm.VMID)},
		}})
	}
	members := site.haMembers(vm, group)
	if len(members) > len(site.Nodes) {
		// The HA manager would reject the rule after the VM was added.
		return nil, hypervisor.Failure(infrav1.InsufficientResourcesReason,
			"the HA manager cannot keep %d VMs on different nodes: the Proxmox VE cluster has %d", len(members), len(site.Nodes))
	}
	if len(members) > 1 {
		rules = append(rules, HARule{"nova-" + group, url.Values{
			"type": {"resource-affinity"}, "affinity": {"negative"}, "resources": {strings.Join(members, ",")},
		}})
	}
	return rules, nil
}

// haMembers returns the IDs of a VM and of the other VMs of its group in the HA manager. It
// returns none without a group.
func (site *Site) haMembers(vm *pve.Resource, group string) []string {
	if group == "" {
		return nil
	}
	members := []string{HAResourceID(vm.VMID)}
	for _, g := range site.Guests {
		if mark, ok := ReadMark(g.TagList()); ok && mark.Group == group && mark.HA != "" && g.HAState != "" && g.VMID != vm.VMID {
			members = append(members, HAResourceID(g.VMID))
		}
	}
	return members
}

// allowsNode reports whether a VM can be on a node.
func (s *Settings) allowsNode(b *Bounds, node string) bool {
	return (len(s.Nodes) == 0 || slices.Contains(s.Nodes, node)) && b.allow("", node, "", b.Nodes) == nil
}
