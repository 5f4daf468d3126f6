package vcenter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
)

// ProviderName is the label of vSphere in metrics.
const ProviderName = "vsphere"

// PollMethod is the method of the long poll.
const PollMethod = "WaitForUpdatesEx"

// Endpoint has the address of a vCenter and the credentials for it.
type Endpoint struct {
	Server             string
	Username, Password string
	// Identity is set if the password comes from a cluster-scoped identity.
	Identity bool
	TLS      endpoints.Trust
}

// ID identifies an endpoint without revealing the password.
func (e Endpoint) ID() string {
	return sessions.ID(e.Server, e.Username, e.Password, e.TLS.CABundle, e.TLS.Thumbprint, strconv.FormatBool(e.Identity))
}

// Wrap wraps the connection to the network. Tests inject faults with it.
type Wrap func(http.RoundTripper) http.RoundTripper

// connection is the client side of the connection to one vCenter: all requests
// to it go through it.
type connection struct {
	meter    sessions.Meter
	timeouts Timeouts
	limiter  *requestLimiter
	wrap     Wrap
	// lastResponse is the time of the last response of vCenter, in nanoseconds.
	lastResponse atomic.Int64
}

// hasRespondedSince reports whether vCenter has responded to any request since
// then.
func (l *connection) hasRespondedSince(since time.Time) bool {
	return l.lastResponse.Load() > since.UnixNano()
}

func newConnection(server string, t Timeouts, w Wrap) *connection {
	return &connection{meter: sessions.NewMeter(ProviderName, server), timeouts: t, limiter: &requestLimiter{}, wrap: w}
}

// keepAlive detects within half a minute that the connection of the long poll
// is broken: firewalls drop connections without a packet to either side.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// dialer connects to vCenter.
func (l *connection) dialer(u *url.URL) *net.Dialer {
	return &net.Dialer{Timeout: l.timeouts.Request / 2, KeepAliveConfig: keepAlive, Control: endpoints.ControlFor(u)}
}

// dial returns a client that is not logged in. Its requests go through l.
func (e Endpoint) dial(ctx context.Context, l *connection) (*vim25.Client, error) {
	config, err := e.TLS.Config()
	if err != nil {
		return nil, err
	}
	sc := soap.NewClient(&url.URL{Scheme: "https", Host: e.Server, Path: vim25.Path}, false)
	sc.UserAgent = "cluster-api-provider-nova"
	// govmomi sets these only for a client that is not wrapped.
	sc.Namespace, sc.Version = "urn:"+vim25.Namespace, vim25.Version
	// The client's own dialer ignores the context, so a vCenter that accepts a
	// connection and then hangs would block a goroutine indefinitely.
	t := sc.DefaultTransport()
	t.DialTLSContext = nil
	t.DialContext = l.dialer(sc.URL()).DialContext
	t.TLSHandshakeTimeout = l.timeouts.Request / 2
	t.TLSClientConfig = config
	t.MaxIdleConnsPerHost = maxRequests
	var next http.RoundTripper = t
	if l.wrap != nil {
		next = l.wrap(t)
	}
	sc.Transport = boundedTransport{next: next}
	sc.CheckRedirect = rejectRedirect
	c, err := vim25.NewClient(ctx, &transport{next: sc, conn: l})
	if err != nil {
		sc.CloseIdleConnections()
		return nil, err
	}
	c.Client = sc
	if supportsVersion(c, sc.Version) {
		return c, nil
	}
	// vCenter is older than govmomi: from here on, each request names the
	// version of the API that vCenter has.
	sc.Version = c.ServiceContent.About.ApiVersion
	return c, nil
}

// supportsVersion reports whether vCenter has a version of the API, such as
// 8.0.0.1, or a newer version.
func supportsVersion(c *vim25.Client, wanted string) bool {
	has, err := version.ParseGeneric(c.ServiceContent.About.ApiVersion)
	return err == nil && has.AtLeast(version.MustParseGeneric(wanted))
}

// rejectRedirect returns the redirect response instead of following it:
// vCenter sends no redirects, and a redirected login would send the password
// to the other server.
func rejectRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// maxResponse limits a response of vCenter in bytes. The largest response has
// the properties of maxUpdates VMs.
const maxResponse = 32 << 20

// errTooLarge is returned while a response is read that has more than
// maxResponse bytes.
var errTooLarge = fmt.Errorf("its response has more than %d MiB", maxResponse>>20)

// boundedTransport limits the bytes that are read of each response, after
// decompression.
type boundedTransport struct{ next http.RoundTripper }

func (b boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(req)
	if err == nil {
		res.Body = &boundedBody{ReadCloser: res.Body, left: maxResponse}
	}
	return res, err
}

type boundedBody struct {
	io.ReadCloser

	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// requestTimeoutKey is the key of the timeout of a request that vCenter answers
// only when its work is done.
type requestTimeoutKey struct{}

// WithRequestTimeout sets the timeout of a request that vCenter answers only
// when its work is done.
func WithRequestTimeout(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, requestTimeoutKey{}, d)
}

// do sends a request: it waits for a slot, sets the timeout, and records the
// metrics.
func (l *connection) do(ctx context.Context, method string, send func(context.Context) error) error {
	timeout := l.timeouts.timeout(method)
	override, slow := ctx.Value(requestTimeoutKey{}).(time.Duration)
	switch {
	case method == PollMethod:
		timeout += l.timeouts.Poll
	case slow:
		timeout = override
	default:
		if err := l.limiter.acquire(ctx); err != nil {
			return err
		}
		defer l.limiter.release(ctx)
	}
	sending, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	err := send(sending)
	result := outcome(err)
	if result != sessions.Error {
		l.lastResponse.Store(time.Now().UnixNano())
	}
	if method != PollMethod && !slow {
		l.meter.Latency(method, time.Since(start))
	}
	l.meter.Request(method, result, "")
	return err
}

// transport sends the requests of the SOAP API.
type transport struct {
	next soap.RoundTripper
	conn *connection
}

// RoundTrip sends a request. A long poll takes no slot.
func (t *transport) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	method := strings.TrimSuffix(reflect.TypeOf(req).Elem().Name(), "Body")
	return t.conn.do(ctx, method, func(ctx context.Context) error { return t.next.RoundTrip(ctx, req, res) })
}

// outcome returns the label of a request's result.
func outcome(err error) string {
	var refused *RESTError
	switch {
	case err == nil:
		return sessions.Success
	case soap.IsSoapFault(err), errors.As(err, &refused):
		return sessions.Fault
	default:
		return sessions.Error
	}
}
