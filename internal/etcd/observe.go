package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// port is the client port of kubeadm's etcd.
const port = 2379

// callTimeout limits each call. A slower member is not healthy.
const callTimeout = 5 * time.Second

// Dial opens a connection to the etcd member on a node.
type Dial func(ctx context.Context, node string) (net.Conn, error)

// Observe reads the state of the members on the nodes. The first member that
// responds lists all members; then each member reports its own state. It fails
// only if no member responds.
func Observe(ctx context.Context, dial Dial, config *tls.Config, nodes []string) (*Health, error) {
	if len(nodes) == 0 {
		return nil, errors.New("no node to ask")
	}
	answers := make([]answer, len(nodes))
	var group sync.WaitGroup
	for i, node := range nodes {
		group.Go(func() {
			answers[i] = ask(ctx, dial, config, node)
			if err := answers[i].err; err != nil {
				answers[i].err = fmt.Errorf("asking etcd on %s: %w", node, err)
			}
		})
	}
	group.Wait()

	var list *clientv3.MemberListResponse
	var errs []error
	alarms := map[uint64][]string{}
	answering := map[uint64]bool{}
	var leader, term uint64
	health := &Health{}
	for _, a := range answers {
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		answering[a.member] = a.leader != 0
		health.Revision = max(health.Revision, a.revision)
		// A former leader does not know that it lost the leadership; the newest
		// term does.
		if a.leader != 0 && a.term >= term {
			leader, term = a.leader, a.term
		}
		for _, alarm := range a.alarms {
			alarms[alarm.member] = append(alarms[alarm.member], alarm.name)
		}
		// The list with more members is the newer one while a member joins.
		if list == nil || len(a.members.Members) > len(list.Members) {
			list = a.members
		}
	}
	if list == nil {
		return nil, errors.Join(errs...)
	}
	if len(list.Members) == 0 {
		return nil, errors.New("only learners answer")
	}
	for _, m := range list.Members {
		health.Members = append(health.Members, Member{
			ID: m.GetID(), Name: m.GetName(), Peers: m.GetPeerURLs(), Learner: m.GetIsLearner(), Answers: answering[m.GetID()],
			Leader: m.GetID() == leader,
		})
	}
	slices.SortFunc(health.Members, byName)
	health.raise(alarms)
	health.Orphans = orphans(answers)
	return health, nil
}

// answer is the response of one member.
type answer struct {
	member uint64
	leader uint64
	term   uint64
	// revision is the newest revision of the member.
	revision int64
	members  *clientv3.MemberListResponse
	alarms   []alarm
	err      error
}

// ask reads the state of the member on one node.
func ask(ctx context.Context, dial Dial, config *tls.Config, node string) (a answer) {
	ctx, client, stop, err := connect(ctx, dial, config, node)
	if err != nil {
		return answer{err: err}
	}
	defer func() { a.err = errors.Join(a.err, stop()) }()

	status, err := client.Status(ctx, client.Endpoints()[0])
	if err != nil {
		return answer{err: fmt.Errorf("reading status: %w", cause(ctx, err))}
	}
	a.member, a.leader, a.term = status.Header.GetMemberId(), status.Leader, status.RaftTerm
	a.revision = status.Header.GetRevision()
	for _, e := range status.Errors {
		if raised, ok := parseAlarm(e); ok {
			a.alarms = append(a.alarms, raised)
		}
	}
	// A learner cannot list members; voters list them.
	if status.IsLearner {
		a.members = &clientv3.MemberListResponse{Members: []*etcdserverpb.Member{}}
		return a
	}
	// Not linearizable: without a quorum that would only time out, and the
	// missing leader shows the same.
	if a.members, err = client.MemberList(ctx, clientv3.WithSerializable()); err != nil {
		return answer{err: fmt.Errorf("listing members: %w", cause(ctx, err))}
	}
	return a
}

// alarm is a raised alarm of a member.
type alarm struct {
	member uint64
	name   string
}

// parseAlarm parses an alarm in a member's status: every member lists all
// alarms.
func parseAlarm(text string) (alarm, bool) {
	found := alarm{}
	for field := range strings.FieldsSeq(text) {
		if id, ok := strings.CutPrefix(field, "memberID:"); ok {
			// An alarm without an ID is still an alarm.
			found.member, _ = strconv.ParseUint(id, 10, 64)
		}
		if name, ok := strings.CutPrefix(field, "alarm:"); ok {
			found.name = name
		}
	}
	return found, found.name != ""
}

// connect connects to the member on one node, for callTimeout. The name in the
// endpoint is the node's, because kubeadm's member certificates contain it. The
// dialer sets the port.
func connect(ctx context.Context, dial Dial, config *tls.Config, node string) (
	_ context.Context, _ *clientv3.Client, stop func() error, _ error,
) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	ctx, fail := context.WithCancelCause(ctx)
	client, err := clientv3.New(clientv3.Config{
		Context:   ctx,
		Endpoints: []string{"https://" + node},
		TLS:       config,
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := dial(ctx, node)
			if err != nil {
				// gRPC would retry until the timeout.
				fail(err)
			}
			return conn, err
		})},
	})
	if err != nil {
		fail(nil)
		cancel()
		return nil, nil, nil, err
	}
	return ctx, client, func() error {
		defer cancel()
		defer fail(nil)
		return closed(client.Close())
	}, nil
}

// cause returns the reason why ctx was canceled, or else err.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// closed drops the error of closing a client after its timeout.
func closed(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
