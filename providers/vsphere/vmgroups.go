package vsphere

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// groupInfo is a DRS group of VMs.
type groupInfo struct {
	types.ClusterGroupInfo
	vms map[ref]bool
}

// clusterChange is a change of the rules and groups of a compute cluster.
type clusterChange struct {
	spec types.ClusterConfigSpecEx
	// rules and groups are the rules and groups that the change modifies, in
	// their new state.
	rules  map[string]*ruleInfo
	groups map[string]*groupInfo
	// missing are the groups that do not exist, by the machines whose VMs
	// belong in them.
	missing map[uuid.UUID]string
}

// group returns a group of VMs as it is, or as a task is about to make it.
func (c *clusterInfo) group(o *objectCache, name string) *groupInfo {
	if pending := c.pendingChange.groups[name]; pending != nil && !c.pendingFailed(o) {
		return pending
	}
	return c.groups[name]
}

// groupOutOfSync reports whether a machine's VM has to be added to its group of
// VMs. The caller holds the lock.
func (i *inventory) groupOutOfSync(vm ref, m *machine, info *vmInfo) bool {
	if m.desired.VMGroup == "" {
		return false
	}
	_, cluster := i.objects.clusterInfoOf(info)
	if cluster == nil {
		return false
	}
	group := cluster.group(i.objects, m.desired.VMGroup)
	return group == nil || !group.vms[vm]
}

// planGroups adds VMs to their groups. Foreign VMs stay in the groups, and
// vCenter itself removes a VM that is deleted. The caller holds the lock.
func (i *inventory) planGroups(at ref, ids []uuid.UUID, change *clusterChange) {
	for _, id := range ids {
		m, vm := i.machines[id], i.objects.byID[id]
		info := i.objects.vms[vm]
		if m == nil || info == nil || m.deleting || m.desired.VMGroup == "" {
			continue
		}
		if in, ok := i.objects.clusterOf(info); !ok || in != at {
			continue
		}
		name := m.desired.VMGroup
		current := i.objects.clusters[at].groups[name]
		if current == nil {
			change.missing[id] = name
			continue
		}
		if current.vms[vm] {
			continue
		}
		if change.groups[name] == nil {
			change.groups[name] = &groupInfo{ClusterGroupInfo: current.ClusterGroupInfo, vms: maps.Clone(current.vms)}
		}
		change.groups[name].vms[vm] = true
	}
	for _, name := range slices.Sorted(maps.Keys(change.groups)) {
		group := change.groups[name]
		change.spec.GroupSpec = append(change.spec.GroupSpec, types.ClusterGroupSpec{
			ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationEdit},
			Info:            &types.ClusterVmGroup{ClusterGroupInfo: group.ClusterGroupInfo, Vm: byValue(group.vms)},
		})
	}
}

// byValue returns VMs in the order of the values of their references.
func byValue(vms map[ref]bool) []ref {
	return slices.SortedFunc(maps.Keys(vms), func(a, b ref) int { return strings.Compare(a.Value, b.Value) })
}

func noVMGroup(name string) error {
	return hypervisor.Failure(infrav1.PlacementNotFoundReason, "placement.vmGroup %q does not exist in the compute cluster, or the account cannot see it", name)
}

// hostGroup returns the hosts of a placement's DRS group. The group of VMs
// must exist, and a rule must bind it to these hosts: without such a rule,
// neither DRS nor vSphere HA keeps VMs there.
func hostGroup(ctx context.Context, c *vim25.Client, cluster ref, p *infrav1.NovaVSpherePlacement) ([]ref, error) {
	missing := hypervisor.Failure(infrav1.PlacementNotFoundReason, "placement.hostGroup %q does not exist in the compute cluster, or the account cannot see it", p.HostGroup)
	if cluster.Type != "ClusterComputeResource" {
		return nil, missing
	}
	var res mo.ClusterComputeResource
	if err := object.NewCommon(c, cluster).Properties(ctx, cluster, []string{settingsProperty}, &res); err != nil {
		return nil, err
	}
	config, ok := res.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !ok {
		return nil, missing
	}
	var members []ref
	for _, group := range config.Group {
		if hosts, ok := group.(*types.ClusterHostGroup); ok && hosts.Name == p.HostGroup {
			members = hosts.Host
		}
	}
	switch {
	case len(members) == 0:
		return nil, missing
	case p.VMGroup == "":
		return members, nil
	case newClusterInfo(config).groups[p.VMGroup] == nil:
		return nil, noVMGroup(p.VMGroup)
	case !slices.ContainsFunc(config.Rule, func(rule types.BaseClusterRuleInfo) bool { return binds(rule, p) }):
		return nil, hypervisor.Failure(infrav1.PlacementNotFoundReason, "no enabled rule of the compute cluster binds placement.vmGroup %q to placement.hostGroup %q",
			p.VMGroup, p.HostGroup)
	}
	return members, nil
}

// binds reports whether a rule keeps the VMs of a placement's group on its
// hosts.
func binds(rule types.BaseClusterRuleInfo, p *infrav1.NovaVSpherePlacement) bool {
	r, ok := rule.(*types.ClusterVmHostRuleInfo)
	return ok && ptr.Deref(r.Enabled, false) && r.VmGroupName == p.VMGroup && r.AffineHostGroupName == p.HostGroup
}
