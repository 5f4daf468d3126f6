package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// Bounds are the objects that an identity allows. The zero value allows all.
type Bounds struct {
	// Identity is the name of the identity. It is empty if there is none.
	Identity string
	proxmoxv1.NovaProxmoxBounds
}

func (b *Bounds) allow(field, value, bound string, entries []string) error {
	if len(entries) == 0 || slices.Contains(entries, value) {
		return nil
	}
	return hypervisor.Failure(infrav1.OutOfBoundsReason, "%s %q is outside of spec.bounds.%s of NovaProxmoxIdentity %q", field, value, bound, b.Identity)
}

// Site is the list of guests, nodes and storages.
type Site struct {
	Guests, Nodes, Storages []*pve.Resource
	// Planned are VMs that were placed and whose list entries do not show it yet.
	Planned []Planned
}

// Planned is a VM that will run on a node.
type Planned struct {
	VMID   int
	Node   string
	Group  string
	Memory int64
}

// Settings are the settings of a machine in its failure domain. Objects are
// referenced by name.
type Settings struct {
	proxmoxv1.NovaProxmoxPlacement

	Template proxmoxv1.NovaProxmoxTemplate
	// Interfaces are the network interfaces of the machine, in order. Each has a
	// network.
	Interfaces []proxmoxv1.NovaProxmoxInterface
}

// SettingsOf returns the settings of a machine in a failure domain. Fields of the
// failure domain override fields of the machine, and fields of the machine override
// fields of the cluster.
func SettingsOf(c *proxmoxv1.NovaProxmoxClusterSpec, m *proxmoxv1.NovaProxmoxMachineSpec, zone string) (Settings, error) {
	var domain proxmoxv1.NovaProxmoxFailureDomain
	s := Settings{Template: m.Template}
	if zone != "" {
		i := slices.IndexFunc(c.FailureDomains, func(d proxmoxv1.NovaProxmoxFailureDomain) bool { return d.Name == zone })
		if i < 0 {
			return s, hypervisor.Failure(infrav1.PlacementNotFoundReason, "failure domain %q is not one of the cluster's spec.failureDomains", zone)
		}
		domain = c.FailureDomains[i]
	}
	for _, p := range []proxmoxv1.NovaProxmoxPlacement{domain.Placement, m.Placement, c.Placement} {
		s.Storage, s.Pool = cmp.Or(s.Storage, p.Storage), cmp.Or(s.Pool, p.Pool)
		s.BootstrapStorage = cmp.Or(s.BootstrapStorage, p.BootstrapStorage)
		if len(s.Nodes) == 0 {
			s.Nodes = p.Nodes
		}
	}
	s.Template = cmp.Or(domain.Template, m.Template, c.Template)
	if domain.LastInterface() >= len(m.Network.GetInterfaces()) {
		return s, kit.InvalidSpec("failure domain %q has a network for interface %d, which the machine does not have", domain.Name, domain.LastInterface())
	}
	for i, in := range m.Network.GetInterfaces() {
		in.Network, in.InterfaceAddressing = domain.Connect(i, cmp.Or(in.Network, c.Network), &in.InterfaceAddressing)
		s.Interfaces = append(s.Interfaces, in.In(domain.Name))
	}
	return s, nil
}

// isTemplate reports whether a guest is the template of a spec.
func isTemplate(g *pve.Resource, t *proxmoxv1.NovaProxmoxTemplate) bool {
	return g.Type == "qemu" && g.Template == 1 &&
		(t.ID == int32(g.VMID) || t.Name != "" && t.Name == g.Name || t.Tag != "" && slices.Contains(g.TagList(), t.Tag))
}

// Templates returns the templates that a machine can be created from.
func (s *Settings) Templates(site *Site, b *Bounds) ([]*pve.Resource, error) {
	if s.Template == (proxmoxv1.NovaProxmoxTemplate{}) {
		return nil, kit.InvalidSpec("template is not set, and neither is spec.template of the cluster")
	}
	var found []*pve.Resource
	offline := ""
	for _, g := range site.Guests {
		if isTemplate(g, &s.Template) {
			if err := b.allow("template", g.Name, "templates", b.Templates); err != nil {
				return nil, err
			}
			if _, owned := ReadMark(g.TagList()); owned {
				return nil, kit.InvalidSpec("the template %q has tags of a machine, which a clone would have too: remove its tags that begin with nova-", s.Template.String())
			}
			if !site.isOnline(g.Node) {
				offline = g.Node
				continue
			}
			found = append(found, g)
		}
	}
	if len(found) == 0 && offline != "" {
		return nil, hypervisor.Failure(infrav1.TemplateNotFoundReason, "the node %s of the template %q is offline", offline, s.Template.String())
	}
	if len(found) == 0 {
		return nil, hypervisor.Failure(infrav1.TemplateNotFoundReason, "the template %q does not exist, or the user cannot see it", s.Template.String())
	}
	return found, nil
}

// isOnline reports whether a node is online.
func (site *Site) isOnline(node string) bool {
	return slices.ContainsFunc(site.Nodes, func(n *pve.Resource) bool { return n.Node == node && n.Status == "online" })
}

// IsRemoved reports whether a node is not part of the cluster any more: the list has nodes
// that are offline too.
func (site *Site) IsRemoved(node string) bool {
	return len(site.Nodes) > 0 && !slices.ContainsFunc(site.Nodes, func(n *pve.Resource) bool { return n.Node == node })
}

// storageOn returns a storage on a node.
func (site *Site) storageOn(node, name string) *pve.Resource {
	for _, s := range site.Storages {
		if s.Node == node && s.Storage == name {
			return s
		}
	}
	return nil
}

// isShared reports whether all storages are shared.
func (site *Site) isShared(node string, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		s := site.storageOn(node, name)
		return s == nil || s.Shared == 0
	})
}

// Host is where a VM is created.
type Host struct {
	Template *pve.Resource
	Node     string
}

// Host chooses the node of a VM: the one with the fewest VMs of the group, and among
// these the one with the most free memory. A template on local storage can only be
// cloned on its own node. storages returns the storages of a template's disks, and false
// if they are not known.
func (s *Settings) Host(site *Site, b *Bounds, templates []*pve.Resource, group string, required bool, storages func(*pve.Resource) []string) (Host, error) {
	type choice struct {
		Host
		peers int
		free  int64
	}
	var choices []choice
	taken, local := 0, 0
	for _, n := range site.Nodes {
		if n.Status != "online" || !s.allowsNode(b, n.Node) {
			continue
		}
		i := slices.IndexFunc(templates, func(t *pve.Resource) bool { return t.Node == n.Node })
		if i < 0 {
			i = slices.IndexFunc(templates, func(t *pve.Resource) bool {
				used := slices.Clone(storages(t))
				if s.Storage != "" {
					used = append(used, s.Storage)
				}
				return site.isShared(t.Node, used) && site.isShared(n.Node, used)
			})
		}
		if i < 0 {
			local++
			continue
		}
		peers, free := site.load(n, group)
		if required && peers > 0 {
			taken++
			continue
		}
		choices = append(choices, choice{Host{templates[i], n.Node}, peers, free})
	}
	if len(choices) > 0 {
		slices.SortStableFunc(choices, func(a, b choice) int {
			return cmp.Or(cmp.Compare(a.peers, b.peers), cmp.Compare(b.free, a.free), strings.Compare(a.Node, b.Node))
		})
		return choices[0].Host, nil
	}
	switch {
	case taken > 0:
		return Host{}, hypervisor.Failure(infrav1.InsufficientResourcesReason, "antiAffinity is Required, and each of the %d possible nodes runs a machine of the same group", taken)
	case local > 0:
		return Host{}, hypervisor.Failure(infrav1.PlacementNotFoundReason, "the template %q is on local storage, and not on any of the %d possible nodes: add a template with the same name or tag there, or use a shared storage", s.Template.String(), local)
	default:
		return Host{}, hypervisor.Failure(infrav1.PlacementNotFoundReason, "none of the nodes %q is online, within the bounds of the identity, and visible for the user", s.Nodes)
	}
}

// load returns the number of VMs of a group on a node, and the free memory of the
// node: that without the memory of its running VMs, or less if more is in use.
func (site *Site) load(n *pve.Resource, group string) (peers int, free int64) {
	used, counted := int64(0), map[int]bool{}
	for _, p := range site.Planned {
		if counted[p.VMID] = true; p.Node == n.Node {
			used += p.Memory
			if group != "" && p.Group == group {
				peers++
			}
		}
	}
	for _, g := range site.Guests {
		if g.Node != n.Node || g.Template == 1 || counted[g.VMID] {
			continue
		}
		if g.Status == "running" {
			used += g.MaxMem
		}
		if mark, ok := ReadMark(g.TagList()); ok && group != "" && mark.Group == group {
			peers++
		}
	}
	return peers, n.MaxMem - max(used, n.Mem)
}

// CheckStorage returns an error unless a storage exists on a node with a type of
// content.
func (site *Site) CheckStorage(b *Bounds, node, name, content string) error {
	s := site.storageOn(node, name)
	if s == nil || !s.Has(content) {
		return hypervisor.Failure(infrav1.PlacementNotFoundReason, "the storage %q does not exist on the node %s, has no content type %s, or the user cannot see it", name, node, content)
	}
	return b.allow("storage", s.Storage, "storages", b.Storages)
}

// BootstrapStorage returns the storage of the image with the bootstrap data.
func (s *Settings) bootstrapStorage(site *Site, b *Bounds, node string) (string, error) {
	if s.BootstrapStorage != "" {
		return s.BootstrapStorage, site.CheckStorage(b, node, s.BootstrapStorage, "iso")
	}
	var found []*pve.Resource
	for _, st := range site.Storages {
		if st.Node == node && site.CheckStorage(b, node, st.Storage, "iso") == nil {
			found = append(found, st)
		}
	}
	if len(found) == 0 {
		return "", hypervisor.Failure(infrav1.PlacementNotFoundReason, "no storage of the node %s has the content type iso, which the bootstrap data needs: add it to a storage, or set placement.bootstrapStorage", node)
	}
	slices.SortStableFunc(found, func(x, y *pve.Resource) int {
		return cmp.Or(cmp.Compare(y.Shared, x.Shared), strings.Compare(x.Storage, y.Storage))
	})
	return found[0].Storage, nil
}

// StorageNamed returns the name of the storage on a node that a tag has in lower case, or
// an empty string if the list has none.
func (site *Site) StorageNamed(node, name string) string {
	for _, s := range site.Storages {
		if s.Node == node && strings.EqualFold(s.Storage, name) {
			return s.Storage
		}
	}
	return ""
}

// NodeOf returns an online node that has a storage, which is the preferred one if it has
// it. It returns an empty string if there is none.
func (site *Site) NodeOf(storage, preferred string) string {
	node := ""
	for _, s := range site.Storages {
		switch {
		case s.Storage != storage || !site.isOnline(s.Node):
		case s.Node == preferred:
			return preferred
		case s.Shared == 1:
			node = s.Node
		}
	}
	return node
}

// Networks returns the networks of a machine.
func (s *Settings) Networks() []string {
	names := make([]string, 0, len(s.Interfaces))
	for i := range s.Interfaces {
		names = append(names, s.Interfaces[i].Network)
	}
	return names
}

// CheckNetworks returns an error unless the networks of a machine exist on its node.
func (s *Settings) CheckNetworks(node string, known []string) error {
	for i := range s.Interfaces {
		name := s.Interfaces[i].Network
		if name == "" {
			return kit.InvalidSpec("network.interfaces[%d].network is not set, and neither is spec.network of the cluster", i)
		}
		if !slices.Contains(known, name) {
			return hypervisor.Failure(infrav1.PlacementNotFoundReason, "the network %q does not exist on the node %s, or the user cannot see it", name, node)
		}
	}
	return nil
}

// CheckBounds returns an error if the bounds do not allow the pool, a network or a PCI
// device of a machine.
func (s *Settings) CheckBounds(b *Bounds, h *proxmoxv1.NovaProxmoxHardware) error {
	for i := range s.Interfaces {
		in := &s.Interfaces[i]
		if err := b.allowNetwork(in.Network, in.VLAN); err != nil {
			return err
		}
	}
	for _, d := range h.PCIDevices {
		if err := b.allow("hardware.pciDevices", d.Mapping, "pciMappings", b.PCIMappings); err != nil {
			return err
		}
	}
	return b.allow("placement.pool", s.Pool, "pools", b.Pools)
}

// allowNetwork returns an error unless an entry allows a VLAN of a network. An entry
// without a VLAN allows all of them.
func (b *Bounds) allowNetwork(name string, vlan int32) error {
	for _, entry := range b.Networks {
		network, vlans, limited := strings.Cut(entry, "/")
		first, last, isRange := strings.Cut(vlans, "-")
		from, _ := strconv.ParseInt(first, 10, 32)
		to := from
		if isRange {
			to, _ = strconv.ParseInt(last, 10, 32)
		}
		if name == "" || network == name && (!limited || vlan != 0 && int64(vlan) >= from && int64(vlan) <= to) {
			return nil
		}
	}
	if vlan != 0 {
		name += "/" + strconv.Itoa(int(vlan))
	}
	return b.allow("network", name, "networks", b.Networks)
}

// CheckConflicts returns an error if another VM of the pool has the name, or if the VM
// of another machine has a static address. Proxmox VE allows both.
func (site *Site) CheckConflicts(mark *Mark, name, pool string, vmid int) error {
	for _, g := range site.Guests {
		if g.Template == 1 || g.VMID == vmid {
			continue
		}
		other, ours := ReadMark(g.TagList())
		if ours && other.ID == mark.ID {
			continue
		}
		if g.Name == name && g.Pool == pool && g.Type == "qemu" {
			return hypervisor.Failure(infrav1.NameConflictReason, "a VM with this machine's name (%d) exists in the pool %q and does not belong to this machine: it is not changed; rename or delete it", g.VMID, pool)
		}
		if i := slices.IndexFunc(mark.Addresses, func(a netip.Addr) bool { return ours && slices.Contains(other.Addresses, a) }); i >= 0 {
			return hypervisor.Failure(infrav1.AddressInUseReason, "the VM %q (%d) already has the address %s: delete that VM, or give this machine another address", g.Name, g.VMID, mark.Addresses[i])
		}
	}
	return nil
}
