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

// port is where kubeadm's etcd serves its clients.
const port = 2379

// callTimeout bounds each question. A member that needs longer is not healthy.
const callTimeout = 5 * time.Second

// Dial opens a connection to the etcd member on a node.
type Dial func(ctx context.Context, node string) (net.Conn, error)

// Observe asks the members on the nodes. The first that answers names all
// members; then each member answers for itself. It fails only if none answers.
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
		// A former leader does not know that it is one; the newest term does.
		if a.leader != 0 && a.term >= term {
			leader, term = a.leader, a.term
		}
		for _, alarm := range a.alarms {
			alarms[alarm.member] = append(alarms[alarm.member], alarm.name)
		}
		// A list with more members is the newer one while someone joins.
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
	health.Strays = strays(answers)
	return health, nil
}

// answer is what one member said.
type answer struct {
	member uint64
	leader uint64
	term   uint64
	// revision is the newest that the member knows.
	revision int64
	members  *clientv3.MemberListResponse
	alarms   []alarm
	err      error
}

// ask asks the member on one node.
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
	// A learner refuses to list members; voters do that for it.
	if status.IsLearner {
		a.members = &clientv3.MemberListResponse{Members: []*etcdserverpb.Member{}}
		return a
	}
	// Not linearizable: without a quorum that would only run out of time, and
	// the leader that is missing says the same.
	if a.members, err = client.MemberList(ctx, clientv3.WithSerializable()); err != nil {
		return answer{err: fmt.Errorf("listing members: %w", cause(ctx, err))}
	}
	return a
}

// alarm is one that is raised for a member.
type alarm struct {
	member uint64
	name   string
}

// parseAlarm reads an alarm as a member's status has it: every member lists
// those of all.
func parseAlarm(text string) (alarm, bool) {
	found := alarm{}
	for field := range strings.FieldsSeq(text) {
		if id, ok := strings.CutPrefix(field, "memberID:"); ok {
			// Without an ID it still is an alarm.
			found.member, _ = strconv.ParseUint(id, 10, 64)
		}
		if name, ok := strings.CutPrefix(field, "alarm:"); ok {
			found.name = name
		}
	}
	return found, found.name != ""
}

// connect connects to the member on one node, for callTimeout. The name in the
// endpoint is the node's, because kubeadm puts it into the member's
// certificate. The port is the dialer's business.
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
				// gRPC would try again until the time is up.
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

// cause returns why ctx was cancelled, or else err.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// closed drops the error of closing a client whose time is up.
func closed(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
