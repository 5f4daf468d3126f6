package reads

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Parallel limits concurrent requests that one node answers.
const Parallel = 8

// ByNode are requests by the node that answers them.
type ByNode map[string][]func(context.Context) error

// Sender sends the requests of each node on its own.
type Sender struct {
	group *errgroup.Group
	mu    sync.Mutex
	busy  map[string]bool
}

// NewSender returns a sender whose requests are part of a group.
func NewSender(group *errgroup.Group) *Sender {
	return &Sender{group: group, busy: map[string]bool{}}
}

// Send sends the requests of each node on its own: a node that hangs delays neither the
// list nor the answers of other nodes. The requests of a node whose earlier ones have not
// ended are left out: they are due again.
func (s *Sender) Send(ctx context.Context, due ByNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, list := range due {
		if s.busy[node] {
			continue
		}
		s.busy[node] = true
		s.group.Go(func() error {
			requests, ctx := errgroup.WithContext(ctx)
			requests.SetLimit(Parallel)
			for _, read := range list {
				requests.Go(func() error { return read(ctx) })
			}
			err := requests.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.busy, node)
			return err
		})
	}
}

// Repeat calls read at an interval until it fails.
func Repeat(ctx context.Context, interval time.Duration, read func(context.Context) error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := read(ctx); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // the end of the session
		}
	}
}
