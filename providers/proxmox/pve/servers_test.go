package pve

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

const loginRequest = "POST /access/ticket"

// start starts a cluster of three nodes.
func start(t *testing.T, timings map[string]time.Duration) *pvesim.Server {
	t.Helper()
	s, err := pvesim.Start(t.Context(), pvesim.Options{Timings: timings, Inventory: cluster.Inventory{
		Nodes: []cluster.NodeSpec{{Name: "pve1"}, {Name: "pve2"}, {Name: "pve3"}},
	}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.Stop)
	return s
}

// at returns the endpoint of all nodes, for the user with a password.
func at(s *pvesim.Server) Endpoint {
	e := Endpoint{
		Username: pvesim.DefaultUsername, Password: pvesim.DefaultPassword, Trust: endpoints.Trust{CABundle: s.CABundle},
		Guard: func(_ context.Context, _ string, login func() error) error { return login() },
	}
	for _, u := range s.URLs {
		e.Servers = append(e.Servers, strings.TrimPrefix(u, "https://"))
	}
	return e
}

// open returns a client.
func open(t *testing.T, e Endpoint) *Client {
	t.Helper()
	c, err := NewClient(e, transport.Meter{Request: func(string, string, string, time.Duration) {}, Connections: func(int) {}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(c.transport.Close)
	return c
}

// version reads the version, which needs a login.
func version(t *testing.T, c *Client) error {
	t.Helper()
	return c.Do(t.Context(), Request{Method: http.MethodGet, Path: []string{"version"}})
}

// pool creates a resource pool.
func pool(t *testing.T, c *Client, name string) error {
	t.Helper()
	return c.Do(t.Context(), Request{Method: http.MethodPost, Path: []string{"pools"}, Form: map[string][]string{"poolid": {name}}})
}

func TestTokenNeedsNoLogin(t *testing.T) {
	g := NewWithT(t)
	s := start(t, nil)
	e := at(s)
	e.Username, e.Password = pvesim.DefaultToken, pvesim.DefaultTokenSecret
	c := open(t, e)
	g.Expect(version(t, c)).To(Succeed())
	g.Expect(pool(t, c, "a")).To(Succeed(), "a token needs no CSRF token either")
	g.Expect(s.Requests()).NotTo(HaveKey(loginRequest))

	e.Password = "ffffffff-0000-0000-0000-000000000000"
	err := version(t, open(t, e))
	g.Expect(IsStatus(err, http.StatusUnauthorized)).To(BeTrue(), "%v", err)
	g.Expect(err.Error()).NotTo(ContainSubstring(e.Password))
	g.Expect(s.Requests()).NotTo(HaveKey(loginRequest))
}

func TestTicketThatExpiresIsReplaced(t *testing.T) {
	g := NewWithT(t)
	// The time in a ticket has no fractions of a second.
	s := start(t, map[string]time.Duration{pvesim.TimeTicket: 2 * time.Second, pvesim.TimeUnauthorized: 10 * time.Millisecond})
	c := open(t, at(s))
	for range 2 {
		logins := s.Requests()[loginRequest]
		g.Eventually(func() int {
			g.Expect(version(t, c)).To(Succeed(), "no request fails because of the ticket")
			return s.Requests()[loginRequest]
		}, 20*time.Second).Should(BeNumerically(">", logins))
	}
	g.Eventually(func() int {
		g.Expect(pool(t, c, "a")).To(Or(Succeed(), MatchError(ContainSubstring("already exists"))))
		return s.Requests()[loginRequest]
	}, 20*time.Second).Should(BeNumerically(">", 2), "a request that changes something is repeated after the login")
}

func TestServersTakeOver(t *testing.T) {
	g := NewWithT(t)
	s := start(t, nil)
	e := at(s)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(closed.Close()).To(Succeed())
	e.Servers = append([]string{closed.Addr().String()}, e.Servers...)
	c := open(t, e)
	g.Expect(version(t, c)).To(Succeed(), "a server that accepts no connection is passed over")

	// The node in use fails, and the next one after it.
	for _, node := range []string{"pve1", "pve2"} {
		g.Expect(s.SetOnline(node, false)).To(Succeed())
		g.Eventually(func() error { return version(t, c) }, 20*time.Second).Should(Succeed(), node)
		g.Expect(pool(t, c, node)).To(Succeed())
		g.Expect(s.SetOnline(node, true)).To(Succeed())
	}
	g.Expect(s.Requests()).To(HaveKeyWithValue(loginRequest, 1), "a ticket is valid on each node")
}

func TestLostRequestIsNotSentToTheNextServer(t *testing.T) {
	g := NewWithT(t)
	s := start(t, nil)
	c := open(t, at(s))
	g.Expect(version(t, c)).To(Succeed())
	s.Inject(pvesim.Fault{Method: http.MethodPost, Path: "pools", Drop: true, After: true})
	err := pool(t, c, "a")
	g.Expect(IsAmbiguous(err)).To(BeTrue(), "%v", err)
	g.Expect(s.Requests()).To(HaveKeyWithValue("POST /pools", 1))
	g.Expect(pool(t, c, "a")).To(MatchError(ContainSubstring("already exists")), "the caller decides whether to repeat it, at the next server")
}

func TestCertificates(t *testing.T) {
	s, other := start(t, nil), start(t, nil)
	for name, c := range map[string]struct {
		trust endpoints.Trust
		want  error
	}{
		"CA":                      {endpoints.Trust{CABundle: s.CABundle}, nil},
		"Thumbprint":              {endpoints.Trust{Thumbprint: s.Thumbprint}, nil},
		"OtherCA":                 {endpoints.Trust{CABundle: other.CABundle}, endpoints.ErrUntrusted},
		"ThumbprintOfCertificate": {endpoints.Trust{Thumbprint: other.Thumbprint}, endpoints.ErrUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := at(s)
			e.Trust = c.trust
			s.ResetRequests()
			err := version(t, open(t, e))
			if c.want == nil {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(c.want))
			g.Expect(s.Requests()).To(BeEmpty(), "the password is not sent to a server that is not trusted")
		})
	}
}

// A node whose certificate is replaced is not trusted any more by its thumbprint, and the
// certificate of a node that the CA did not sign ends the session with this node only.
func TestCertificateIsReplaced(t *testing.T) {
	g := NewWithT(t)
	s, other := start(t, nil), start(t, nil)
	front := &forwarder{}
	front.set(strings.TrimPrefix(s.URLs[0], "https://"))
	address := front.listen(t)
	e := at(s)
	e.Servers, e.Trust = []string{address}, endpoints.Trust{Thumbprint: s.Thumbprint}
	pinned := open(t, e)
	g.Expect(version(t, pinned)).To(Succeed())
	e.Servers, e.Trust = []string{address, e.Servers[0]}, endpoints.Trust{CABundle: s.CABundle}
	e.Servers[1] = strings.TrimPrefix(s.URLs[1], "https://")
	signed := open(t, e)
	g.Expect(version(t, signed)).To(Succeed())

	front.set(strings.TrimPrefix(other.URLs[0], "https://"))
	pinned.transport.Close()
	signed.transport.Close()
	g.Expect(version(t, pinned)).To(MatchError(endpoints.ErrUntrusted))
	g.Eventually(func() error { return version(t, signed) }, 20*time.Second).Should(Succeed(), "the next server has a certificate of the CA")
	g.Expect(other.Requests()).To(BeEmpty())
}

// served returns the endpoint of a server that is none of Proxmox VE.
func served(t *testing.T, handler http.HandlerFunc) Endpoint {
	t.Helper()
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return Endpoint{
		Servers: []string{s.Listener.Addr().String()}, Username: pvesim.DefaultToken, Password: pvesim.DefaultTokenSecret,
		Trust: endpoints.Trust{CABundle: string(ca)},
	}
}

func TestRedirectIsRejected(t *testing.T) {
	g := NewWithT(t)
	s := start(t, nil)
	err := version(t, open(t, served(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.URLs[0]+r.URL.Path, http.StatusTemporaryRedirect)
	})))
	g.Expect(IsStatus(err, http.StatusTemporaryRedirect)).To(BeTrue(), "%v", err)
	g.Expect(s.Requests()).To(BeEmpty(), "the token is sent to no other server")
}

func TestResponseIsBounded(t *testing.T) {
	g := NewWithT(t)
	err := version(t, open(t, served(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte(" "), maxResponse))
		_, _ = io.WriteString(w, `{"data": {}}`)
	})))
	g.Expect(IsDown(err)).To(BeTrue(), "%v", err)
}

// forwarder is an address at which another server can respond.
type forwarder struct {
	target atomic.Value
}

func (f *forwarder) set(target string) { f.target.Store(target) }

// listen forwards connections until the test ends.
func (f *forwarder) listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go f.forward(conn)
		}
	}()
	return l.Addr().String()
}

func (f *forwarder) forward(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	target, err := net.Dial("tcp", f.target.Load().(string))
	if err != nil {
		return
	}
	defer func() { _ = target.Close() }()
	go func() {
		_, _ = io.Copy(target, conn)
		_ = target.Close()
	}()
	_, _ = io.Copy(conn, target)
}
