package plan

import (
	"strings"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// groupPrefix is the prefix of the names of affinity groups that managers
// create. It is for display; groupMark identifies the groups.
const groupPrefix = "nova-"

// groupMark is the prefix of the descriptions of affinity groups that managers
// create. The cluster's ID and a space follow.
const groupMark = "nova-cluster/"

// GroupOwner returns the ID of the cluster for which a manager created an
// affinity group. It is empty for other groups.
func GroupOwner(g *ovirt.AffinityGroup) string {
	rest, ok := strings.CutPrefix(g.Description, groupMark)
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, " ")
	return id
}

// AntiAffinityGroup returns the affinity group that separates m from similar
// machines, if m belongs to one. The name contains the cluster's ID and the
// mode: during a rollout that changes the mode, old and new machines must not
// change the same group back and forth.
//
// The group is created with its first member, so an empty group is a group
// whose last member was removed.
func AntiAffinityGroup(clusterID string, m *zvirtv1.NovaZVirtMachine, at Placement) (ovirt.AffinityGroup, bool) {
	group, mode := infrav1.AntiAffinityGroup(m), infrav1.AntiAffinityOf(m, at.AntiAffinity)
	if group == "" || mode == infrav1.AntiAffinityNone {
		return ovirt.AffinityGroup{}, false
	}
	return ovirt.AffinityGroup{
		Name:        groupPrefix + group + "-" + strings.ToLower(string(mode)) + "-" + clusterID,
		Description: groupMark + clusterID + " Keeps machines of Cluster API on different hosts. It is removed with its last member.",
		VMsRule:     &ovirt.AffinityRule{Enabled: true, Enforcing: mode == infrav1.AntiAffinityRequired},
	}, true
}
