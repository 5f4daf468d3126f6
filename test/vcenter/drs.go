package vcenter

import (
	"slices"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const methodReconfigureCluster = "ReconfigureComputeResource_Task"

// ruleKeys numbers rules over all clusters.
var ruleKeys atomic.Int32

// Rule is an anti-affinity rule of a cluster.
type Rule struct {
	Name      string   `json:"name"`
	VMs       []string `json:"vms"`
	Enabled   bool     `json:"enabled"`
	Mandatory bool     `json:"mandatory"`
}

// ReconfigureComputeResourceTask changes the rules of a cluster, and groups
// and settings as the simulator does. Rules keep vCenter's own conditions: two
// VMs or more, each in the cluster, and a name of their own.
func (o *operations) ReconfigureComputeResourceTask(ctx *simulator.Context, req *types.ReconfigureComputeResource_Task) soap.HasFault {
	body := &methods.ReconfigureComputeResource_TaskBody{}
	cluster, ok := ctx.Map.Get(req.This).(*simulator.ClusterComputeResource)
	if !ok {
		body.Fault_ = soapFault(notFound(req.This))
		return body
	}
	task := o.s.startTask(ctx, work{
		method:        methodReconfigureCluster,
		descriptionID: "ComputeResource.reconfigureEx",
		on:            cluster,
		run: func(types.ManagedObjectReference) (_ types.AnyType, refused *failure) {
			o.s.locked(func(ctx *simulator.Context) { refused = o.s.reconfigureCluster(ctx, cluster, req) })
			return nil, refused
		},
	})
	body.Res = &types.ReconfigureComputeResource_TaskResponse{Returnval: task}
	return body
}

// reconfigureCluster does not change the settings in place, because earlier
// readers still refer to them. The caller holds the inventory.
func (s *Server) reconfigureCluster(
	ctx *simulator.Context, cluster *simulator.ClusterComputeResource, req *types.ReconfigureComputeResource_Task,
) *failure {
	spec, ok := req.Spec.(*types.ClusterConfigSpecEx)
	if !ok {
		return fail(&types.InvalidArgument{InvalidProperty: "spec"})
	}
	config := *cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	config.Rule = slices.Clone(config.Rule)
	for _, change := range spec.GroupSpec {
		if group, ok := change.Info.(*types.ClusterVmGroup); ok && !allIn(ctx, cluster, group.Vm) {
			return fail(&types.InvalidArgument{InvalidProperty: "groupSpec"})
		}
	}
	for _, change := range spec.RulesSpec {
		if rule, ok := change.Info.(*types.ClusterVmHostRuleInfo); ok && (!hasGroup(&config, spec, rule.VmGroupName) || !hasGroup(&config, spec, rule.AffineHostGroupName)) {
			return fail(&types.InvalidArgument{InvalidProperty: "rulesSpec"})
		}
		if refused := changeRule(ctx, cluster, &config, change); refused != nil {
			return refused
		}
	}
	rest := *spec
	rest.RulesSpec = nil
	config.Group = slices.Clone(config.Group)
	cluster.ConfigurationEx = &config
	_, refused := s.inner(ctx, func() types.ManagedObjectReference {
		res := cluster.ReconfigureComputeResourceTask(ctx, &types.ReconfigureComputeResource_Task{This: req.This, Modify: req.Modify, Spec: &rest})
		return res.(*methods.ReconfigureComputeResource_TaskBody).Res.Returnval
	})
	s.watch.touch(cluster.Self)
	return refused
}

// hasGroup reports whether a cluster has a group, or is about to.
func hasGroup(config *types.ClusterConfigInfoEx, spec *types.ClusterConfigSpecEx, name string) bool {
	return slices.ContainsFunc(config.Group, func(g types.BaseClusterGroupInfo) bool { return g.GetClusterGroupInfo().Name == name }) ||
		slices.ContainsFunc(spec.GroupSpec, func(g types.ClusterGroupSpec) bool { return g.Info != nil && g.Info.GetClusterGroupInfo().Name == name })
}

func changeRule(
	ctx *simulator.Context, cluster *simulator.ClusterComputeResource, config *types.ClusterConfigInfoEx, change types.ClusterRuleSpec,
) *failure {
	invalid := fail(&types.InvalidArgument{InvalidProperty: "rulesSpec"})
	at := slices.IndexFunc(config.Rule, func(rule types.BaseClusterRuleInfo) bool { return concerns(change, rule.GetClusterRuleInfo()) })
	if change.Operation == types.ArrayUpdateOperationRemove {
		if at < 0 {
			return invalid
		}
		config.Rule = slices.Delete(config.Rule, at, at+1)
		return nil
	}
	if rule, ok := change.Info.(*types.ClusterAntiAffinityRuleSpec); ok && (len(rule.Vm) < 2 || !allIn(ctx, cluster, rule.Vm)) {
		return invalid
	}
	switch info := change.Info.GetClusterRuleInfo(); {
	case change.Operation == types.ArrayUpdateOperationAdd && at >= 0:
		return fail(&types.DuplicateName{Name: info.Name, Object: cluster.Self})
	case change.Operation == types.ArrayUpdateOperationAdd:
		info.Key = ruleKeys.Add(1)
		info.RuleUuid = uuid.NewString()
		config.Rule = append(config.Rule, change.Info)
	case at < 0:
		return invalid
	default:
		config.Rule[at] = change.Info
	}
	return nil
}

// concerns reports whether a change is about a rule.
func concerns(change types.ClusterRuleSpec, rule *types.ClusterRuleInfo) bool {
	switch change.Operation {
	case types.ArrayUpdateOperationRemove:
		return change.RemoveKey == rule.Key
	case types.ArrayUpdateOperationAdd:
		return change.Info.GetClusterRuleInfo().Name == rule.Name
	default:
		return change.Info.GetClusterRuleInfo().Key == rule.Key
	}
}

func allIn(ctx *simulator.Context, cluster *simulator.ClusterComputeResource, vms []ref) bool {
	for _, vm := range vms {
		it, ok := ctx.Map.Get(vm).(*simulator.VirtualMachine)
		if !ok || it.Runtime.Host == nil || !slices.Contains(cluster.Host, *it.Runtime.Host) {
			return false
		}
	}
	return true
}

// dropFromRules removes a deleted VM from its rules and groups, as vCenter
// does. The rest of a rule remains, even if it is empty.
func (s *Server) dropFromRules(ctx *simulator.Context, vm ref) {
	for _, entity := range ctx.Map.All("ClusterComputeResource") {
		cluster, ok := entity.(*simulator.ClusterComputeResource)
		if !ok {
			continue
		}
		config := *cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
		config.Rule = slices.Clone(config.Rule)
		changed := false
		for i, rule := range config.Rule {
			apart, ok := rule.(*types.ClusterAntiAffinityRuleSpec)
			if !ok || !slices.Contains(apart.Vm, vm) {
				continue
			}
			rest := *apart
			rest.Vm = without(apart.Vm, map[ref]bool{vm: true})
			config.Rule[i], changed = &rest, true
		}
		config.Group = slices.Clone(config.Group)
		for i, group := range config.Group {
			vms, ok := group.(*types.ClusterVmGroup)
			if !ok || !slices.Contains(vms.Vm, vm) {
				continue
			}
			rest := *vms
			rest.Vm = without(vms.Vm, map[ref]bool{vm: true})
			config.Group[i], changed = &rest, true
		}
		if changed {
			cluster.ConfigurationEx = &config
			s.watch.touch(cluster.Self)
		}
	}
}

// Rules lists the anti-affinity rules of all clusters, with the names of their
// VMs.
func (s *Server) Rules() []Rule {
	var all []Rule
	s.locked(func(ctx *simulator.Context) {
		for _, entity := range ctx.Map.All("ClusterComputeResource") {
			cluster, ok := entity.(*simulator.ClusterComputeResource)
			if !ok {
				continue
			}
			for _, rule := range cluster.ConfigurationEx.(*types.ClusterConfigInfoEx).Rule {
				if apart, ok := rule.(*types.ClusterAntiAffinityRuleSpec); ok {
					all = append(all, describeRule(ctx, apart))
				}
			}
		}
	})
	return all
}

func describeRule(ctx *simulator.Context, rule *types.ClusterAntiAffinityRuleSpec) Rule {
	out := Rule{
		Name: rule.Name, Enabled: rule.Enabled != nil && *rule.Enabled, Mandatory: rule.Mandatory != nil && *rule.Mandatory,
	}
	for _, vm := range rule.Vm {
		if it, ok := ctx.Map.Get(vm).(*simulator.VirtualMachine); ok {
			out.VMs = append(out.VMs, it.Name)
		}
	}
	slices.Sort(out.VMs)
	return out
}
