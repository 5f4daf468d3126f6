package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// RemoveMember removes a member by its ID, through the first node that
// succeeds. A member that does not exist is treated as removed: the response to
// an earlier call may have been lost. etcd itself rejects a removal that would
// break the quorum. The alarms of the member are disarmed too: otherwise etcd
// would keep them, and reject writes because of a member that no longer exists.
func RemoveMember(ctx context.Context, dial Dial, config *tls.Config, nodes []string, id uint64) error {
	if len(nodes) == 0 {
		return errors.New("no node to ask")
	}
	var errs []error
	for _, node := range nodes {
		err := on(ctx, dial, config, node, func(ctx context.Context, client *clientv3.Client) error {
			removed, err := client.MemberRemove(ctx, id)
			switch {
			case errors.Is(err, rpctypes.ErrMemberNotFound):
			case err != nil:
				return err
			case removed.Header.GetMemberId() == id:
				return errors.New("it has removed itself, so another one has to see to its alarms")
			}
			return disarm(ctx, client, id)
		})
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("removing member %x through etcd on %s: %w", id, node, err))
	}
	return errors.Join(errs...)
}

// disarm clears the raised alarms of a member. etcd identifies them by the
// member's ID, even if the member does not exist.
func disarm(ctx context.Context, client *clientv3.Client, id uint64) error {
	raised, err := client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("listing alarms: %w", err)
	}
	for _, alarm := range raised.Alarms {
		if alarm.GetMemberID() != id {
			continue
		}
		if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: id, Alarm: alarm.GetAlarm()}); err != nil {
			return fmt.Errorf("disarming %s: %w", alarm.GetAlarm(), err)
		}
	}
	return nil
}

// MoveLeader makes another voting member the leader. Only the leader can do
// that, so node must be the leader's.
func MoveLeader(ctx context.Context, dial Dial, config *tls.Config, node string, to uint64) error {
	err := on(ctx, dial, config, node, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.MoveLeader(ctx, to)
		return err
	})
	if err != nil {
		return fmt.Errorf("moving leadership from etcd on %s to member %x: %w", node, to, err)
	}
	return nil
}

// on calls a function with the member on one node.
func on(ctx context.Context, dial Dial, config *tls.Config, node string,
	do func(context.Context, *clientv3.Client) error,
) (reterr error) {
	ctx, client, stop, err := connect(ctx, dial, config, node)
	if err != nil {
		return err
	}
	defer func() { reterr = errors.Join(reterr, stop()) }()
	if err := do(ctx, client); err != nil {
		return cause(ctx, err)
	}
	return nil
}
