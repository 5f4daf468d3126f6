package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// slowWindow is the interval at which the progress of a transfer is
	// measured, and slowBytes the number of bytes that must be transferred in
	// it. A snapshot of 2 GiB that takes the whole hour transfers four times as
	// much.
	slowWindow, slowBytes = time.Minute, 8 << 20
	// maxAnswer is the largest response of a server. Contents are only
	// uploaded, and the largest page of a listing has about 2 MiB.
	maxAnswer = 16 << 20
)

// ErrSlow means that a transfer was canceled because it was too slow.
var ErrSlow = fmt.Errorf("less than %d MiB a minute are transferred", slowBytes>>20)

// errLarge means that a response of the server is too large.
var errLarge = errors.New("the server's answer is too large")

// guard returns a context that ends with ErrSlow if a transfer makes too little
// progress. Otherwise a slow server would block a worker for the timeout of a
// whole snapshot.
func (b *Bucket) guard(ctx context.Context) (guarded context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		ticker := time.NewTicker(b.window)
		defer ticker.Stop()
		for last := b.moved.Load(); ; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			now := b.moved.Load()
			if now-last < slowBytes {
				cancel(ErrSlow)
				return
			}
			last = now
		}
	}()
	return ctx, func() { cancel(nil) }
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// counted returns a dialer whose connections count their bytes.
func (b *Bucket) counted(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, moved: &b.moved}, nil
	}
}

type countedConn struct {
	net.Conn

	moved *atomic.Int64
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.moved.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.moved.Add(int64(n))
	return n, err
}

type countedReader struct {
	io.Reader

	moved *atomic.Int64
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.moved.Add(int64(n))
	return n, err
}

// limited is a transport with a limit for the size of responses.
type limited struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = &limitedBody{ReadCloser: response.Body, left: maxAnswer}
	return response, nil
}

type limitedBody struct {
	io.ReadCloser

	left int64
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLarge
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
