package access

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// Many connections are forwarded a few at a time, and a failed one frees its
// slot.
func TestForwardLimiter(t *testing.T) {
	g := NewWithT(t)
	slots := newForwardLimiter()
	var open, most atomic.Int32
	forward := func(_ context.Context, node string) (net.Conn, error) {
		if node == "broken" {
			return nil, errors.New("no such node")
		}
		most.Store(max(most.Load(), open.Add(1)))
		here, _ := net.Pipe()
		return &limitedConn{Conn: here, leave: sync.OnceFunc(func() { open.Add(-1) })}, nil
	}
	for range 3 * forwardsAtOnce {
		_, err := slots.dial(t.Context(), forward, "broken")
		g.Expect(err).To(MatchError("no such node"))
	}
	done := make(chan error)
	for range 3 * forwardsAtOnce {
		go func() {
			conn, err := slots.dial(t.Context(), forward, "node")
			if err == nil {
				err = errors.Join(conn.Close(), conn.Close())
			}
			done <- err
		}()
	}
	for range 3 * forwardsAtOnce {
		g.Expect(<-done).To(Succeed())
	}
	g.Expect(open.Load()).To(BeZero())
	g.Expect(most.Load()).To(BeNumerically("<=", forwardsAtOnce))
	g.Expect(slots).To(BeEmpty(), "all slots are free")
}

// Connections that hang block others only for a short time.
func TestForwardLimiterTimeout(t *testing.T) {
	g := NewWithT(t)
	slots := newForwardLimiter()
	for range forwardsAtOnce {
		slots <- struct{}{}
	}
	forward := func(context.Context, string) (net.Conn, error) {
		here, _ := net.Pipe()
		return here, nil
	}
	begun := time.Now()
	conn, err := slots.dial(t.Context(), forward, "node")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(time.Since(begun)).To(BeNumerically(">=", timelimits.DirectTimeout))
	g.Expect(conn.Close()).To(Succeed())
	g.Expect(slots).To(HaveLen(forwardsAtOnce), "it had no slot to free")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = slots.dial(ctx, forward, "node")
	g.Expect(err).To(MatchError(context.Canceled))
}
