package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
)

const (
	// Parallel limits the concurrent requests of one user to one hypervisor, so that many
	// machines wait here and do not overload it.
	Parallel = 16
	// idleTimeout is the time after which an unused connection is closed.
	idleTimeout = 2 * time.Minute
	// keepAlive is the interval of probes of a connection.
	keepAlive = 15 * time.Second
)

// UnreachableError means that no response arrived. The request may have been executed.
type UnreachableError struct {
	Err error

	// notSent is set if there was no connection.
	notSent bool
}

func (e *UnreachableError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// IsUnreachable reports whether no response arrived.
func IsUnreachable(err error) bool {
	_, ok := errors.AsType[*UnreachableError](err)
	return ok
}

// IsNotSent reports whether there was no connection, so that the request was not executed.
func IsNotSent(err error) bool {
	e, ok := errors.AsType[*UnreachableError](err)
	return ok && e.notSent
}

// errTooLarge is the cause of a response that is larger than its limit.
var errTooLarge = errors.New("too large")

// IsTooLarge reports whether a response was larger than its limit.
func IsTooLarge(err error) bool { return errors.Is(err, errTooLarge) }

// Options are the settings of a Client.
type Options struct {
	Trust endpoints.Trust
	// Servers are the servers of the hypervisor, with a port if it is not that of HTTPS.
	Servers []string
	// Dial limits the time for a connection, and for its TLS handshake.
	Dial  time.Duration
	Meter Meter
	// Peer names a server in errors, such as the engine.
	Peer string
}

// Client sends requests to one hypervisor.
type Client struct {
	http  *http.Client
	slots chan struct{}
	meter Meter
	peer  string
}

// New returns a client without connections.
func New(o Options) (*Client, error) {
	config, err := o.Trust.Config()
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	return &Client{
		slots: make(chan struct{}, Parallel), meter: o.Meter, peer: o.Peer,
		http: &http.Client{
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, DialContext: o.dial, TLSClientConfig: config, TLSHandshakeTimeout: o.Dial,
				MaxConnsPerHost: Parallel, MaxIdleConnsPerHost: Parallel, IdleConnTimeout: idleTimeout,
			},
			// The APIs never redirect; a proxy in front of one redirects to a login form.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Acquire waits for a slot for a request. The caller calls release after the request.
func (c *Client) Acquire(ctx context.Context) (release func(), err error) {
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err() //nolint:wrapcheck // the caller's own context
	}
}

// counted is a connection that reports once when it is closed.
type counted struct {
	net.Conn

	once   sync.Once
	closed func()
}

func (c *counted) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close() //nolint:wrapcheck // a net.Conn
}

// dial opens a connection. The policy of the manager applies to it, unless the
// administrator set a proxy for all servers.
func (o *Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: o.Dial, KeepAlive: keepAlive}
	for _, server := range o.Servers {
		if control := endpoints.ControlFor(&url.URL{Scheme: "https", Host: server}); control != nil {
			dialer.Control = control
		}
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http wraps it
	}
	o.Meter.Connections(1)
	return &counted{Conn: conn, closed: func() { o.Meter.Connections(-1) }}, nil
}

// Limits are the limits of one request.
type Limits struct {
	// Pattern is the path in metrics, with {} for names and IDs.
	Pattern string
	// Bytes limits the response.
	Bytes int
	// Total limits the request, and Part the time until the response begins and between
	// two parts of it.
	Total, Part time.Duration
}

// Send sends a request and reads the response.
func (c *Client) Send(ctx context.Context, method, target string, header http.Header, body []byte, l Limits) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Total)
	defer cancel()
	ctx, stall := context.WithCancelCause(ctx)
	timer := time.AfterFunc(l.Part, func() { stall(errStalled) })
	defer timer.Stop()
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("making request: %w", err)
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("User-Agent", "cluster-api-provider-nova")
	start := time.Now()
	res, err := c.http.Do(req)
	var content []byte
	if err == nil {
		content, err = io.ReadAll(io.LimitReader(&watched{Reader: res.Body, timer: timer, timeout: l.Part}, int64(l.Bytes)+1))
		_ = res.Body.Close()
		if len(content) > l.Bytes {
			err = fmt.Errorf("%s's answer has more than %d MiB: %w", c.peer, l.Bytes>>20, errTooLarge)
		}
	}
	// The end of a response that the server aborted may arrive while the connection is
	// being closed.
	if errors.Is(context.Cause(ctx), errStalled) {
		err = errStalled
	}
	code := "error"
	if err == nil {
		code = strconv.Itoa(res.StatusCode)
	}
	c.meter.Request(method, l.Pattern, code, time.Since(start))
	if err != nil {
		op, _ := errors.AsType[*net.OpError](err)
		return nil, nil, &UnreachableError{Err: endpoints.Coarse(req.URL.Host, err), notSent: op != nil && op.Op == "dial"}
	}
	return res, content, nil
}

// errStalled is the cause of a request whose response stopped for too long.
var errStalled = fmt.Errorf("no response in time: %w", context.DeadlineExceeded)

// watched resets a timer with every read that returns data.
type watched struct {
	io.Reader

	timer   *time.Timer
	timeout time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.timer.Reset(w.timeout)
	}
	return n, err //nolint:wrapcheck // io.EOF
}
