package plan

import (
	"strings"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
)

// groupPrefix begins the names of affinity groups that managers create. It is for
// people; groupMark identifies the groups.
const groupPrefix = "nova-"

// groupMark begins the descriptions of affinity groups that managers create. The
// cluster's ID and a space follow.
const groupMark = "nova-cluster/"

// GroupOwner returns the ID of the cluster whose machines a group keeps apart,
// or nothing for a group that was not created by a manager.
func GroupOwner(g *ovirt.AffinityGroup) string {
	rest, ok := strings.CutPrefix(g.Description, groupMark)
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, " ")
	return id
}

// AntiAffinityGroup is the affinity group that keeps m apart from its like, if m
// belongs to one. The cluster's ID is part of the name, and so is the
// strictness: machines of a rollout that changes it must not pull one group
// both ways.
//
// The group is made with its first member, so an empty one is one that the
// last has left.
func AntiAffinityGroup(clusterID string, m *infrav1.NovaZVirtMachine, at Site) (ovirt.AffinityGroup, bool) {
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
