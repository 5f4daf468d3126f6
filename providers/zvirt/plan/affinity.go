package plan

import (
	"strings"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
)

// GroupPrefix begins the names of affinity groups of ours.
const GroupPrefix = "nova-"

// SpreadGroup is the affinity group that keeps m apart from its like, if m
// belongs to one. The cluster's ID is part of the name, and so is the
// strictness: machines of a rollout that changes it must not pull one group
// both ways.
//
// The group is made with its first member, so an empty one is one that the
// last has left.
func SpreadGroup(clusterID string, m *infrav1.NovaZVirtMachine) (ovirt.AffinityGroup, bool) {
	group, mode := infrav1.SpreadGroup(m), m.Spec.Affinity.GetAntiAffinity()
	if group == "" || mode == infrav1.ZVirtNoAntiAffinity {
		return ovirt.AffinityGroup{}, false
	}
	return ovirt.AffinityGroup{
		Name:        GroupPrefix + group + "-" + strings.ToLower(string(mode)) + "-" + clusterID,
		Description: "Keeps machines of Cluster API on different hosts. It is removed with its last member.",
		VMsRule:     &ovirt.AffinityRule{Enabled: true, Enforcing: mode == infrav1.ZVirtHardAntiAffinity},
	}, true
}
