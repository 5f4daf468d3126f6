package access

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

const (
	// forwardsAtOnce is the maximum number of concurrent connections through
	// API servers. Each needs almost a MiB for the compression of its headers,
	// and clusters that start together would each have one to every node.
	forwardsAtOnce = 8
)

// forwardLimiter limits the number of concurrent connections through API servers.
type forwardLimiter chan struct{}

func newForwardLimiter() forwardLimiter { return make(forwardLimiter, forwardsAtOnce) }

// dial forwards to a node when a slot is free. Closing the connection frees the
// slot.
func (g forwardLimiter) dial(ctx context.Context, forward etcd.Dial, node string) (net.Conn, error) {
	leave := func() {}
	select {
	case g <- struct{}{}:
		leave = sync.OnceFunc(func() { <-g })
	case <-time.After(timelimits.DirectTimeout):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	conn, err := dialForward(ctx, forward, node)
	if err != nil {
		leave()
		return nil, err
	}
	return &limitedConn{Conn: conn, leave: leave}, nil
}

// limitedConn is a connection that frees its slot when it is closed.
type limitedConn struct {
	net.Conn

	leave func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
