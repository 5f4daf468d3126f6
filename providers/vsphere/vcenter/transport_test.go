package vcenter

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/soap"
	"golang.org/x/sys/unix"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
)

// dialed returns the error of a client that reads the service content of a
// server with handler.
func dialed(t *testing.T, handler http.HandlerFunc) error {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	e := Endpoint{Server: server.Listener.Addr().String(), TLS: endpoints.Trust{Thumbprint: thumbprintOf(server)}}
	_, err := e.dial(t.Context(), newConnection(e.Server, DefaultTimeouts, nil))
	return err
}

// A redirect would send the body of the request, which may be a login, to
// another server.
func TestRedirectIsRefused(t *testing.T) {
	for _, code := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusFound} {
		g := NewWithT(t)
		var requests atomic.Int32
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
		t.Cleanup(other.Close)
		err := dialed(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, code) })
		g.Expect(err).To(MatchError(ContainSubstring(http.StatusText(code))))
		g.Expect(requests.Load()).To(BeZero())
	}
}

func TestAnswerIsBounded(t *testing.T) {
	g := NewWithT(t)
	var sent atomic.Int64
	err := dialed(t, func(w http.ResponseWriter, _ *http.Request) {
		const begin = `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body>` +
			`<RetrieveServiceContentResponse xmlns="urn:vim25"><returnval><about><name>`
		_, err := io.WriteString(w, begin)
		for part := strings.Repeat("a", 1<<20); err == nil && sent.Load() < 256<<20; {
			var n int
			n, err = io.WriteString(w, part)
			sent.Add(int64(n))
		}
	})
	g.Expect(err).To(MatchError(errTooLarge))
	g.Expect(sent.Load()).To(BeNumerically("<", 2*maxResponse))
}

func thumbprintOf(s *httptest.Server) string { return soap.ThumbprintSHA256(s.Certificate()) }

// A connection that a firewall drops without a packet is closed within half a
// minute, and a poll without updates ends before a firewall counts the
// connection as idle.
func TestDroppedConnectionsAreNoticed(t *testing.T) {
	g := NewWithT(t)
	g.Expect(DefaultTimeouts.Poll).To(BeNumerically("<=", 30*time.Second))
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	g.Expect(err).NotTo(HaveOccurred())
	conn, err := newConnection(u.Host, DefaultTimeouts, nil).dialer(u).DialContext(t.Context(), "tcp", u.Host)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = conn.Close() })
	raw, err := conn.(*net.TCPConn).SyscallConn()
	g.Expect(err).NotTo(HaveOccurred())
	option := func(name int) (value int) {
		g.Expect(raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name) })).To(Succeed())
		g.Expect(err).NotTo(HaveOccurred())
		return value
	}
	g.Expect(option(unix.TCP_KEEPIDLE) + option(unix.TCP_KEEPINTVL)*option(unix.TCP_KEEPCNT)).To(BeNumerically("<=", 30))
}
