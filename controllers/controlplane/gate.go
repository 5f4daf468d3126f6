package controlplane

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
)

const (
	// forwardsAtOnce is how many connections go through API servers at once.
	// Each holds almost a MiB, for the compression of its headers, and tenants
	// that come up together would each have one to every node.
	forwardsAtOnce = 8
	// turnPatience is how long one waits for its turn. After that it goes
	// without: tenants that hang must not keep the others waiting.
	turnPatience = time.Second
)

// gate bounds how many connections go through API servers at once.
type gate chan struct{}

func newGate() gate { return make(gate, forwardsAtOnce) }

// dial forwards to a node when it is its turn. The turn ends with the
// connection.
func (g gate) dial(ctx context.Context, forward etcd.Dial, node string) (net.Conn, error) {
	leave := func() {}
	select {
	case g <- struct{}{}:
		leave = sync.OnceFunc(func() { <-g })
	case <-time.After(turnPatience):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	conn, err := dialForward(ctx, forward, node)
	if err != nil {
		leave()
		return nil, err
	}
	return &gatedConn{Conn: conn, leave: leave}, nil
}

// gatedConn is a connection whose end lets another one begin.
type gatedConn struct {
	net.Conn

	leave func()
}

// Close implements net.Conn.
func (c *gatedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
