package etcd

import (
	"context"
	"errors"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMembers(t *testing.T) {
	nodes := []string{"cp-a", "cp-b", "cp-c"}
	c := startCluster(t, nodes...)
	g := c.g
	whole := func() ([]string, error) {
		health, err := Observe(t.Context(), c.dial, c.config, nodes)
		if err != nil {
			return nil, err
		}
		return health.Problems(nodes), nil
	}
	g.Eventually(whole, "30s", "100ms").Should(BeEmpty())
	find := func(is func(Member) bool) func() (Member, error) {
		return func() (Member, error) {
			health, err := Observe(t.Context(), c.dial, c.config, nodes)
			if err != nil {
				return Member{}, err
			}
			at := slices.IndexFunc(health.Members, is)
			if at < 0 {
				return Member{}, errors.New("no such member")
			}
			return health.Members[at], nil
		}
	}
	leader, err := find(func(m Member) bool { return m.Leader })()
	g.Expect(err).NotTo(HaveOccurred())
	other, err := find(func(m Member) bool { return !m.Leader })()
	g.Expect(err).NotTo(HaveOccurred())

	err = MoveLeader(t.Context(), c.dial, c.config, other.Name, other.ID)
	g.Expect(err).To(MatchError(rpctypes.ErrNotLeader), "only the leader hands over")
	g.Expect(MoveLeader(t.Context(), c.dial, c.config, leader.Name, other.ID)).To(Succeed())
	g.Eventually(find(func(m Member) bool { return m.Leader }), "10s", "100ms").Should(HaveField("ID", other.ID))

	// The node is deleted before its member; other members remove it. etcd
	// rejects membership changes shortly after its start.
	c.members[leader.Name].kill()
	rest := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == leader.Name })
	through := append([]string{leader.Name}, rest...)
	g.Eventually(func() error {
		return RemoveMember(t.Context(), c.dial, c.config, through, leader.ID)
	}, "30s", "500ms").Should(Succeed())
	g.Expect(RemoveMember(t.Context(), c.dial, c.config, rest, leader.ID)).To(Succeed(), "an answer may have been lost")
	health, err := Observe(t.Context(), c.dial, c.config, rest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(health.Problems(rest)).To(BeEmpty())

	// Two members are left, and one fails: without a quorum etcd does not
	// change its members.
	last := slices.DeleteFunc(slices.Clone(rest), func(n string) bool { return n == other.Name })
	c.members[last[0]].kill()
	err = RemoveMember(t.Context(), c.dial, c.config, []string{other.Name}, other.ID)
	g.Expect(err).To(HaveOccurred())
	g.Expect(RemoveMember(t.Context(), c.dial, c.config, nil, other.ID)).To(MatchError("no node to ask"))
}

// arm raises an alarm for a member, through the one on cp-a.
func (c *cluster) arm(t *testing.T, member uint64, kind etcdserverpb.AlarmType) error {
	t.Helper()
	return on(t.Context(), c.dial, c.config, "cp-a", func(ctx context.Context, client *clientv3.Client) error {
		_, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(ctx, &etcdserverpb.AlarmRequest{
			Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: member, Alarm: kind,
		})
		return err
	})
}

// write writes through the member on cp-a.
func (c *cluster) write(t *testing.T) error {
	t.Helper()
	return on(t.Context(), c.dial, c.config, "cp-a", func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Put(ctx, "key", "value")
		return err
	})
}

// etcd keeps the alarms of removed members, and rejects writes because of them.
func TestRemovedMembersAlarms(t *testing.T) {
	nodes := []string{"cp-a", "cp-b", "cp-c"}
	c := startCluster(t, nodes...)
	g := c.g
	id := map[string]uint64{}
	g.Eventually(func() ([]string, error) {
		health, err := Observe(t.Context(), c.dial, c.config, nodes)
		if err != nil {
			return nil, err
		}
		for _, m := range health.Members {
			id[m.Name] = m.ID
		}
		return health.Problems(nodes), nil
	}, "30s", "100ms").Should(BeEmpty())
	arm := func(member uint64, kind etcdserverpb.AlarmType) error { return c.arm(t, member, kind) }
	write := func() error { return c.write(t) }
	g.Expect(write()).To(Succeed())
	g.Expect(arm(id["cp-c"], etcdserverpb.AlarmType_NOSPACE)).To(Succeed())
	g.Expect(write()).To(MatchError(rpctypes.ErrNoSpace))
	g.Expect(arm(id["cp-c"], etcdserverpb.AlarmType_CORRUPT)).To(Succeed())
	g.Expect(write()).To(MatchError(rpctypes.ErrCorrupt))

	// The first member that is called is the one being removed, and it cannot
	// complete the call.
	g.Eventually(func() error {
		return RemoveMember(t.Context(), c.dial, c.config, []string{"cp-c", "cp-a", "cp-b"}, id["cp-c"])
	}, "30s", "500ms").Should(Succeed())
	rest := nodes[:2]
	health, err := Observe(t.Context(), c.dial, c.config, rest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(health.Problems(rest)).To(BeEmpty())
	g.Expect(write()).To(Succeed())

	// The member was removed, and its alarms were not disarmed.
	g.Expect(arm(id["cp-c"], etcdserverpb.AlarmType_NOSPACE)).To(Succeed())
	// An alarm of member 0 must not be disarmed.
	g.Expect(arm(0, etcdserverpb.AlarmType_CORRUPT)).To(Succeed())
	orphans := func() ([]uint64, error) {
		health, err := Observe(t.Context(), c.dial, c.config, rest)
		if err != nil {
			return nil, err
		}
		return health.Orphans, nil
	}
	g.Eventually(orphans, "30s", "100ms").Should(ConsistOf(id["cp-c"]))
	g.Expect(RemoveMember(t.Context(), c.dial, c.config, rest, id["cp-c"])).To(Succeed())
	g.Eventually(orphans, "30s", "100ms").Should(BeEmpty())
	g.Expect(write()).To(MatchError(rpctypes.ErrCorrupt))
	g.Expect(on(t.Context(), c.dial, c.config, "cp-a", func(ctx context.Context, client *clientv3.Client) error {
		return disarm(ctx, client, 0)
	})).To(Succeed())
	g.Expect(write()).To(Succeed())

	g.Expect(arm(id["cp-b"], etcdserverpb.AlarmType_NOSPACE)).To(Succeed())
	g.Expect(RemoveMember(t.Context(), c.dial, c.config, rest, id["cp-c"])).To(Succeed())
	g.Expect(write()).To(MatchError(rpctypes.ErrNoSpace), "the alarms of those that stay do too")
	g.Consistently(orphans, "500ms", "100ms").Should(BeEmpty())
}
