package parts

import (
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// ruleState has the machines of groups, and the changes under way. The lock of
// the inventory protects it.
type ruleState struct {
	machines map[uuid.UUID]*groupedMachine
	// groups are the machines of each group by the name of its rule.
	groups map[string]*group
	// pending are the changes under way, by compute cluster.
	pending map[types.ManagedObjectReference]pendingChange
}

// groupedMachine has the settings of a machine for rules and groups.
type groupedMachine struct {
	rule         string
	antiAffinity infrav1.AntiAffinity
	vmGroup      string
	deleting     bool
	// left means that the rule was changed for the deletion of the VM, and
	// failed counts the attempts at that.
	left   bool
	failed int
}

func (m *groupedMachine) requires() bool {
	return !m.deleting && m.antiAffinity == infrav1.AntiAffinityRequired
}

// group is a group of machines that are kept on different hosts.
type group struct {
	ids map[uuid.UUID]bool
	// required counts the machines that require it and are not being deleted.
	required int
}

// mandatory reports whether the group's rule is mandatory. While its machines
// differ, because of a rolling update, one machine that requires it is
// sufficient.
func (g *group) mandatory() bool { return g != nil && g.required > 0 }

// clusterChange is a change of the rules and groups of a compute cluster.
type clusterChange struct {
	spec types.ClusterConfigSpecEx
	// rules and groups are the rules and groups that the change modifies, in
	// their new state.
	rules  map[string]*spec.Rule
	groups map[string]*spec.Group
	// missing are the groups that do not exist, by the machines whose VMs
	// belong in them.
	missing map[uuid.UUID]string
}

// pendingChange is a change that a task makes. It is valid until vCenter
// reports the cluster's settings again.
type pendingChange struct {
	clusterChange
	task types.ManagedObjectReference
	of   *cache.ComputeCluster
}

func newRuleState() ruleState {
	return ruleState{machines: map[uuid.UUID]*groupedMachine{}, groups: map[string]*group{}, pending: map[types.ManagedObjectReference]pendingChange{}}
}

// Name returns the name of the part.
func (*ruleState) Name() string { return inventory.SyncRules }

// Created records nothing: the compute cluster shows the rules.
func (*ruleState) Created(uuid.UUID, types.ManagedObjectReference) {}

// Set records the desired state of a machine.
func (s *ruleState) Set(id uuid.UUID, desired *spec.Desired, deleting bool) bool {
	m := s.machines[id]
	if m == nil {
		m = &groupedMachine{}
		s.machines[id] = m
	}
	s.ungroup(id, m)
	changed := m.rule != desired.Rule || m.antiAffinity != desired.AntiAffinity || m.vmGroup != desired.VMGroup
	m.rule, m.antiAffinity, m.vmGroup, m.deleting = desired.Rule, desired.AntiAffinity, desired.VMGroup, deleting
	s.regroup(id, m)
	return changed
}

// Forget drops a machine.
func (s *ruleState) Forget(id uuid.UUID) {
	if m := s.machines[id]; m != nil {
		s.ungroup(id, m)
	}
	delete(s.machines, id)
}

// regroup adds a machine to its group.
func (s *ruleState) regroup(id uuid.UUID, m *groupedMachine) {
	if m.rule == "" {
		return
	}
	g := s.groups[m.rule]
	if g == nil {
		g = &group{ids: map[uuid.UUID]bool{}}
		s.groups[m.rule] = g
	}
	g.ids[id] = true
	if m.requires() {
		g.required++
	}
}

// ungroup removes a machine from its group.
func (s *ruleState) ungroup(id uuid.UUID, m *groupedMachine) {
	g := s.groups[m.rule]
	if g == nil || !g.ids[id] {
		return
	}
	delete(g.ids, id)
	if m.requires() {
		g.required--
	}
	if len(g.ids) == 0 {
		delete(s.groups, m.rule)
	}
}

// peers returns the machines of a group.
func (s *ruleState) peers(rule string) map[uuid.UUID]bool {
	if g := s.groups[rule]; g != nil {
		return g.ids
	}
	return nil
}

// Differences lists the rule and the VM group of a machine if they have to be
// changed for its VM.
func (s *ruleState) Differences(o *cache.Objects, id uuid.UUID) (differences []string, known bool) {
	m, vm := s.machines[id], o.ByID[id]
	info := o.VMs[vm]
	if m == nil || info == nil {
		return nil, true
	}
	at, cluster := o.ComputeClusterOf(info)
	if cluster == nil {
		return nil, true
	}
	if s.ruleOutOfSync(o, vm, m, at, cluster) {
		differences = append(differences, "the anti-affinity rule "+m.rule)
	}
	if group := s.groupIn(o, at, m.vmGroup); m.vmGroup != "" && (group == nil || !group.VMs[vm]) {
		differences = append(differences, "the VM group "+m.vmGroup)
	}
	return differences, true
}

// change returns the change under way of a compute cluster, unless its task has
// failed or vCenter has reported the settings since.
func (s *ruleState) change(o *cache.Objects, at types.ManagedObjectReference) clusterChange {
	pending := s.pending[at]
	if pending.of != o.Clusters[at] {
		return clusterChange{}
	}
	if task := o.Tasks[pending.task]; task != nil && task.Failed() {
		return clusterChange{}
	}
	return pending.clusterChange
}

// ruleIn returns a rule as it is, or as a task is about to make it.
func (s *ruleState) ruleIn(o *cache.Objects, at types.ManagedObjectReference, name string) *spec.Rule {
	if pending, ok := s.change(o, at).rules[name]; ok {
		return pending
	}
	return o.Clusters[at].Rules[name]
}

// groupIn returns a group of VMs as it is, or as a task is about to make it.
func (s *ruleState) groupIn(o *cache.Objects, at types.ManagedObjectReference, name string) *spec.Group {
	if pending := s.change(o, at).groups[name]; pending != nil {
		return pending
	}
	return o.Clusters[at].Groups[name]
}

// ruleOutOfSync reports whether the rule of a machine's group has to be changed
// for its VM.
func (s *ruleState) ruleOutOfSync(o *cache.Objects, vm types.ManagedObjectReference, m *groupedMachine, at types.ManagedObjectReference, cluster *cache.ComputeCluster) bool {
	if m.rule == "" {
		return false
	}
	rule := s.ruleIn(o, at, m.rule)
	switch {
	case m.antiAffinity == infrav1.AntiAffinityNone:
		return rule != nil && rule.VMs[vm]
	case s.hasTooFewHosts(o, m.rule, at):
		return rule != nil
	case rule != nil:
		return !rule.VMs[vm] || ptr.Deref(rule.Mandatory, false) != s.groups[m.rule].mandatory()
	case !cluster.DRS && m.antiAffinity != infrav1.AntiAffinityRequired:
		return false // a rule would have no effect, or is not allowed
	default:
		return s.hasMembers(o, m.rule, at, 2)
	}
}

// hasTooFewHosts reports whether a preferred rule would leave no host of a
// compute cluster without a VM of the group. vSphere HA does not restart a VM
// against a rule, and DRS does not evacuate a host against a rule.
func (s *ruleState) hasTooFewHosts(o *cache.Objects, rule string, at types.ManagedObjectReference) bool {
	return !s.groups[rule].mandatory() && s.hasMembers(o, rule, at, int(o.UsableHosts[at]))
}

// members returns the VMs that belong in a group's rule in a compute cluster,
// as far as their machines are known.
func (s *ruleState) members(o *cache.Objects, rule string, at types.ManagedObjectReference) map[types.ManagedObjectReference]bool {
	out := map[types.ManagedObjectReference]bool{}
	for id := range s.peers(rule) {
		if vm, in := s.member(o, id, at); in {
			out[vm] = true
		}
	}
	return out
}

// hasMembers reports whether a group has n VMs or more in a compute cluster.
func (s *ruleState) hasMembers(o *cache.Objects, rule string, at types.ManagedObjectReference, n int) bool {
	for id := range s.peers(rule) {
		if n <= 0 {
			break
		}
		if _, in := s.member(o, id, at); in {
			n--
		}
	}
	return n <= 0
}

// member returns a machine's VM and whether it belongs in the rule of its
// group in a compute cluster.
func (s *ruleState) member(o *cache.Objects, id uuid.UUID, at types.ManagedObjectReference) (types.ManagedObjectReference, bool) {
	m, vm := s.machines[id], o.ByID[id]
	info := o.VMs[vm]
	if m == nil || info == nil || m.deleting || m.antiAffinity == infrav1.AntiAffinityNone {
		return vm, false
	}
	in, ok := o.ClusterOf(info)
	return vm, ok && in == at
}

// nonMembers returns the VMs of a group's machines that do not belong in its
// rule in a compute cluster.
func (s *ruleState) nonMembers(o *cache.Objects, rule string, at types.ManagedObjectReference) map[types.ManagedObjectReference]bool {
	in, out := s.members(o, rule, at), map[types.ManagedObjectReference]bool{}
	for id := range s.peers(rule) {
		if vm, known := o.ByID[id]; known && !in[vm] {
			out[vm] = true
		}
	}
	return out
}

// plan returns the change of a compute cluster for which machines wait.
func (s *ruleState) plan(o *cache.Objects, at types.ManagedObjectReference, ids []uuid.UUID) clusterChange {
	change := clusterChange{rules: map[string]*spec.Rule{}, groups: map[string]*spec.Group{}, missing: map[uuid.UUID]string{}}
	cluster := o.Clusters[at]
	if cluster == nil {
		return change
	}
	s.planGroups(o, at, ids, &change)
	for _, id := range ids {
		m := s.machines[id]
		if m == nil || m.rule == "" {
			continue
		}
		if _, done := change.rules[m.rule]; done {
			continue
		}
		p := s.planRule(o, m.rule, at, ptr.To(s.groups[m.rule].mandatory()))
		current := cluster.Rules[m.rule]
		change.rules[p.Name] = current
		rule := p.Change(current)
		if rule == nil {
			continue
		}
		change.spec.RulesSpec = append(change.spec.RulesSpec, *rule)
		change.rules[p.Name] = nil
		if rule.Info != nil {
			change.rules[p.Name] = &spec.Rule{ClusterRuleInfo: *rule.Info.GetClusterRuleInfo(), VMs: p.Members}
		}
	}
	return change
}

// planRule returns the target state of a group's rule in a compute cluster. A
// VM in the rule whose machine is not known yet stays in it: the manager may
// have just started. A preferred rule has no members while the cluster has too
// few hosts for them.
func (s *ruleState) planRule(o *cache.Objects, name string, at types.ManagedObjectReference, mandatory *bool) spec.PlannedRule {
	p := spec.PlannedRule{Name: name, Mandatory: mandatory, Members: s.members(o, name, at)}
	nonMembers := s.nonMembers(o, name, at)
	if rule := o.Clusters[at].Rules[name]; rule != nil {
		for vm := range rule.VMs {
			if _, exists := o.IDs[vm]; exists && !nonMembers[vm] {
				p.Members[vm] = true
			}
		}
	}
	if !ptr.Deref(mandatory, false) && len(p.Members) >= int(o.UsableHosts[at]) {
		clear(p.Members)
	}
	return p
}

// planGroups adds VMs to their groups. Foreign VMs stay in the groups, and
// vCenter itself removes a VM that is deleted.
func (s *ruleState) planGroups(o *cache.Objects, at types.ManagedObjectReference, ids []uuid.UUID, change *clusterChange) {
	for _, id := range ids {
		m, vm := s.machines[id], o.ByID[id]
		info := o.VMs[vm]
		if m == nil || info == nil || m.deleting || m.vmGroup == "" {
			continue
		}
		if in, ok := o.ClusterOf(info); !ok || in != at {
			continue
		}
		current := o.Clusters[at].Groups[m.vmGroup]
		if current == nil {
			change.missing[id] = m.vmGroup
			continue
		}
		if current.VMs[vm] {
			continue
		}
		if change.groups[m.vmGroup] == nil {
			change.groups[m.vmGroup] = &spec.Group{ClusterGroupInfo: current.ClusterGroupInfo, VMs: maps.Clone(current.VMs)}
		}
		change.groups[m.vmGroup].VMs[vm] = true
	}
	for _, name := range slices.Sorted(maps.Keys(change.groups)) {
		change.spec.GroupSpec = append(change.spec.GroupSpec, change.groups[name].Change())
	}
}

// maxFailed is the number of attempts to change a rule before the deletion of a VM: a VM
// does not stay because of a rule.
const maxFailed = 3

// leaveAgain makes the rules of machines change again before their VMs are deleted.
// Attempts without a connection do not count: no VM can be deleted then either.
func (s *ruleState) leaveAgain(ids []uuid.UUID, err error) {
	e := vcenter.AsError(err)
	counts := e == nil || !e.Transient && e.Reason != infrav1.EndpointUnreachableReason
	for _, id := range ids {
		m := s.machines[id]
		if m == nil || !m.left {
			continue
		}
		if counts {
			m.failed++
		}
		m.left = m.failed >= maxFailed
	}
}

// toLeave returns the compute cluster in which the rule of a machine's group
// has to be changed before its VM is deleted.
func (s *ruleState) toLeave(o *cache.Objects, id uuid.UUID) (types.ManagedObjectReference, bool) {
	m, vm := s.machines[id], o.ByID[id]
	info := o.VMs[vm]
	if m == nil || info == nil || m.left || m.rule == "" {
		return types.ManagedObjectReference{}, false
	}
	at, cluster := o.ComputeClusterOf(info)
	if cluster == nil {
		return types.ManagedObjectReference{}, false
	}
	rule := s.ruleIn(o, at, m.rule)
	if rule == nil {
		return types.ManagedObjectReference{}, false
	}
	rest, nonMembers := 0, s.nonMembers(o, m.rule, at)
	for other := range rule.VMs {
		if _, exists := o.IDs[other]; exists && other != vm && !nonMembers[other] {
			rest++
		}
	}
	m.left = rest < 2
	return at, m.left
}
