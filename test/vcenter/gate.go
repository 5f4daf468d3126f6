package vcenter

import (
	"context"
	"net"
	"sync"
)

// gate is a listener that can play dead.
type gate struct {
	net.Listener

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]struct{}
	// open is closed while requests are answered.
	open    chan struct{}
	hanging bool
}

func newGate(l net.Listener) *gate {
	open := make(chan struct{})
	close(open)
	return &gate{Listener: l, conns: map[net.Conn]struct{}{}, open: open}
}

// Accept returns the next connection, or resets it while the gate is down.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g.admit(conn) {
			return &gateConn{Conn: conn, gate: g}, nil
		}
		reset(conn)
	}
}

func (g *gate) admit(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down {
		return false
	}
	g.conns[conn] = struct{}{}
	return true
}

func (g *gate) setDown(down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down = down
	if !down {
		return
	}
	for conn := range g.conns {
		reset(conn)
	}
	clear(g.conns)
}

func (g *gate) setHanging(hanging bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if hanging == g.hanging {
		return
	}
	g.hanging = hanging
	if hanging {
		g.open = make(chan struct{})
	} else {
		close(g.open)
	}
}

// wait waits until requests are answered; false if the client went first.
func (g *gate) wait(ctx context.Context) bool {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return true
	case <-ctx.Done():
		return false
	}
}

// reset closes a connection so that the peer sees an error, not an end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

type gateConn struct {
	net.Conn
	gate *gate
}

// Close closes the connection and forgets it.
func (c *gateConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c.Conn)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
