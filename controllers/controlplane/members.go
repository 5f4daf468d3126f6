package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
)

// lostMembers takes members out of etcd whose machine and node are gone and
// who do not answer. kubeadm waits for every listed member, so nobody could
// join beside one.
func (r *Reconciler) lostMembers(ctx context.Context, s *scope) error {
	if _, found := lostMember(s, r.now()); !found {
		return nil
	}
	// The cache may not know the newest machines yet.
	live, err := r.ownedMachines(ctx, r.APIReader, s)
	if err != nil {
		return err
	}
	seen := *s
	seen.machines = live
	member, found := lostMember(&seen, r.now())
	if !found {
		return nil
	}
	if err := r.Tenants.RemoveMember(ctx, s.key(), s.tenant.Nodes, member.ID); err != nil {
		return fmt.Errorf("removing etcd member %s of a machine that is gone: %w", member.Name, err)
	}
	r.event(s, corev1.EventTypeNormal, "EtcdMemberRemoved", "RemoveMember",
		fmt.Sprintf("Removed etcd member %s (%x), whose machine and node are gone", member.Name, member.ID))
	// The answer is shared with later looks.
	health := *s.tenant.Etcd
	health.Members = slices.DeleteFunc(slices.Clone(health.Members), func(m etcd.Member) bool { return m.ID == member.ID })
	s.tenant.Etcd = &health
	return nil
}

// lostMember returns the member to remove next, if etcd keeps its quorum
// without it.
func lostMember(s *scope, now time.Time) (etcd.Member, bool) {
	if !s.initialized || !s.tenant.Answers || s.tenant.Etcd == nil {
		return etcd.Member{}, false
	}
	decision := plan.Decide(membership(s, now))
	if decision.Action != plan.RemoveMember {
		return etcd.Member{}, false
	}
	at := slices.IndexFunc(s.tenant.Etcd.Members, func(m etcd.Member) bool { return m.ID == decision.Member })
	if at < 0 {
		return etcd.Member{}, false
	}
	return s.tenant.Etcd.Members[at], true
}

// membership tells plan of members and whom they belong to, and nothing that
// would make it decide about machines. What answers, has a node or has not
// started is somebody's.
func membership(s *scope, now time.Time) plan.Input {
	known := memberNames(s)
	for _, node := range s.tenant.Nodes {
		known = append(known, node.Name)
	}
	input := plan.Input{Now: now, Initialized: true, Etcd: &plan.Etcd{}, Limits: plan.Limits{LearnerGrace: time.Minute}}
	for _, m := range s.tenant.Etcd.Members {
		if m.Answers {
			known = append(known, m.Name)
		}
		input.Etcd.Members = append(input.Etcd.Members, plan.Member{
			ID: m.ID, Name: m.Name, Machine: m.Name, Since: now, Learner: m.Learner, Healthy: m.Answers, Leader: m.Leader,
		})
	}
	slices.Sort(known)
	for _, name := range slices.Compact(known) {
		input.Machines = append(input.Machines, plan.Machine{Name: name, Created: now, Node: true})
	}
	return input
}
