package resolve

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
)

// hostGroupMembers returns the hosts of a placement's DRS group. The group of VMs
// must exist, and a rule must bind it to these hosts: without such a rule,
// neither DRS nor vSphere HA keeps VMs there.
func hostGroupMembers(ctx context.Context, c *vim25.Client, cluster ref, p *vspherev1.NovaVSpherePlacement) ([]ref, error) {
	missing := hypervisor.Failure(infrav1.PlacementNotFoundReason, "placement.hostGroup %q does not exist in the compute cluster, or the account cannot see it", p.HostGroup)
	if cluster.Type != "ClusterComputeResource" {
		return nil, missing
	}
	var res mo.ClusterComputeResource
	if err := object.NewCommon(c, cluster).Properties(ctx, cluster, []string{"configurationEx"}, &res); err != nil {
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
	case spec.NewClusterSettings(config).Groups[p.VMGroup] == nil:
		return nil, spec.VMGroupNotFound(p.VMGroup)
	case !slices.ContainsFunc(config.Rule, func(rule types.BaseClusterRuleInfo) bool { return binds(rule, p) }):
		return nil, hypervisor.Failure(infrav1.PlacementNotFoundReason, "no enabled rule of the compute cluster binds placement.vmGroup %q to placement.hostGroup %q",
			p.VMGroup, p.HostGroup)
	}
	return members, nil
}

// binds reports whether a rule keeps the VMs of a placement's group on its
// hosts.
func binds(rule types.BaseClusterRuleInfo, p *vspherev1.NovaVSpherePlacement) bool {
	r, ok := rule.(*types.ClusterVmHostRuleInfo)
	return ok && ptr.Deref(r.Enabled, false) && r.VmGroupName == p.VMGroup && r.AffineHostGroupName == p.HostGroup
}
