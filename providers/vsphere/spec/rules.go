package spec

import (
	"maps"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// ClusterSettings are the settings of a compute cluster that VMs of machines
// need.
type ClusterSettings struct {
	// Rules are the anti-affinity rules by name, Groups the groups of VMs.
	Rules  map[string]*Rule
	Groups map[string]*Group
	// DRS is set while DRS is enabled. Without DRS, a preferred rule has no
	// effect.
	DRS bool
}

// Rule is an anti-affinity rule.
type Rule struct {
	types.ClusterRuleInfo
	VMs map[types.ManagedObjectReference]bool
}

// Group is a DRS group of VMs.
type Group struct {
	types.ClusterGroupInfo
	VMs map[types.ManagedObjectReference]bool
}

// NewClusterSettings returns the settings in the configuration of a compute
// cluster.
func NewClusterSettings(config *types.ClusterConfigInfoEx) ClusterSettings {
	s := ClusterSettings{Rules: map[string]*Rule{}, Groups: map[string]*Group{}, DRS: ptr.Deref(config.DrsConfig.Enabled, false)}
	for _, group := range config.Group {
		if g, ok := group.(*types.ClusterVmGroup); ok {
			s.Groups[g.Name] = &Group{ClusterGroupInfo: g.ClusterGroupInfo, VMs: setOf(g.Vm)}
		}
	}
	for _, rule := range config.Rule {
		if r, ok := rule.(*types.ClusterAntiAffinityRuleSpec); ok {
			s.Rules[r.Name] = &Rule{ClusterRuleInfo: r.ClusterRuleInfo, VMs: setOf(r.Vm)}
		}
	}
	return s
}

func setOf(vms []types.ManagedObjectReference) map[types.ManagedObjectReference]bool {
	set := make(map[types.ManagedObjectReference]bool, len(vms))
	for _, vm := range vms {
		set[vm] = true
	}
	return set
}

// PlannedRule is the target state of a rule.
type PlannedRule struct {
	Name      string
	Mandatory *bool
	Members   map[types.ManagedObjectReference]bool
}

// Change returns the change that brings a rule to its target state, or nil. A
// rule needs two VMs. The administrators of the vCenter decide whether it is
// enabled.
func (p PlannedRule) Change(current *Rule) *types.ClusterRuleSpec {
	few := len(p.Members) < 2
	switch {
	case current == nil && few:
		return nil
	case current == nil:
		return p.spec(types.ArrayUpdateOperationAdd, types.ClusterRuleInfo{Enabled: ptr.To(true)})
	case few:
		return &types.ClusterRuleSpec{ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationRemove, RemoveKey: current.Key}}
	case maps.Equal(p.Members, current.VMs) && ptr.Deref(current.Mandatory, false) == ptr.Deref(p.Mandatory, false):
		return nil
	default:
		return p.spec(types.ArrayUpdateOperationEdit, types.ClusterRuleInfo{Key: current.Key, RuleUuid: current.RuleUuid, Enabled: current.Enabled})
	}
}

func (p PlannedRule) spec(op types.ArrayUpdateOperation, info types.ClusterRuleInfo) *types.ClusterRuleSpec {
	info.Name, info.Mandatory, info.UserCreated = p.Name, p.Mandatory, ptr.To(true)
	return &types.ClusterRuleSpec{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: op},
		Info:            &types.ClusterAntiAffinityRuleSpec{ClusterRuleInfo: info, Vm: byValue(p.Members)},
	}
}

// Change returns the change that gives the group its VMs.
func (g *Group) Change() types.ClusterGroupSpec {
	return types.ClusterGroupSpec{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationEdit},
		Info:            &types.ClusterVmGroup{ClusterGroupInfo: g.ClusterGroupInfo, Vm: byValue(g.VMs)},
	}
}

// byValue returns VMs in the order of the values of their references.
func byValue(vms map[types.ManagedObjectReference]bool) []types.ManagedObjectReference {
	return slices.SortedFunc(maps.Keys(vms), func(a, b types.ManagedObjectReference) int { return strings.Compare(a.Value, b.Value) })
}

// VMGroupNotFound returns the error for a group of VMs that does not exist.
func VMGroupNotFound(name string) error {
	return hypervisor.Failure(infrav1.PlacementNotFoundReason, "placement.vmGroup %q does not exist in the compute cluster, or the account cannot see it", name)
}
