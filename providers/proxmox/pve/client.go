package pve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
)

const (
	apiPath     = "/api2/json"
	defaultPort = "8006"
	// timeout limits a request: a node gives another node 30 s for a response.
	timeout = 40 * time.Second
	// dialTimeout limits the connection to one server, so that the next one is used
	// soon.
	dialTimeout = 5 * time.Second
	// maxResponse limits a response in bytes, and maxList the list of all guests,
	// which has about 500 bytes for each.
	maxResponse = 1 << 20
	maxList     = 64 << 20
)

// Endpoint is a Proxmox VE cluster with credentials.
type Endpoint struct {
	// Servers are nodes of the cluster: host names or addresses, with a port if it is
	// not 8006.
	Servers []string
	// Username is a user with its realm, or an API token: user@realm!token. Password
	// is the password of the user or the secret of the token.
	Username, Password string
	Trust              endpoints.Trust
	// Guard calls login, which sends the credentials to a server, or returns an error
	// instead.
	Guard func(ctx context.Context, server string, login func() error) error
}

// Request is a request to the API.
type Request struct {
	Method string
	Path   []string
	// Form are the parameters. Empty values are sent too.
	Form url.Values
	// File is uploaded as a file with the name FileName.
	File     []byte
	FileName string
	// Guest is set if a guest agent makes the data of the response. An answer that cannot
	// be read is a failure of the guest then, and not of the server.
	Guest bool
	// Into receives the data of the response.
	Into any
}

// Client connects to one Proxmox VE cluster as one user.
type Client struct {
	endpoint  Endpoint
	transport *transport.Client
	// id is the ID of the Proxmox VE cluster, once it is known.
	id atomic.Pointer[string]
	// server is the index of the server in use.
	server atomic.Int32
	// ticket contains the ticket of the user. The goroutine that takes it may log
	// in; others wait.
	ticket chan ticket
}

// ticket is the login of a user with a password.
type ticket struct {
	Ticket string `json:"ticket"`
	CSRF   string `json:"CSRFPreventionToken"`
}

// NewClient returns a client that is not logged in.
func NewClient(e Endpoint, meter transport.Meter) (*Client, error) {
	servers := make([]string, 0, len(e.Servers))
	for _, server := range e.Servers {
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(strings.Trim(server, "[]"), defaultPort)
		}
		servers = append(servers, server)
	}
	e.Servers = servers
	t, err := transport.New(transport.Options{
		Trust: e.Trust, Servers: servers, Dial: dialTimeout, Meter: meter, Peer: "the node",
	})
	if err != nil {
		return nil, err
	}
	c := &Client{endpoint: e, transport: t, ticket: make(chan ticket, 1)}
	c.ticket <- ticket{}
	return c, nil
}

// isToken reports whether the credentials are an API token, which needs no login.
func (c *Client) isToken() bool { return strings.Contains(c.endpoint.Username, "!") }

// Do sends a request. If the ticket has expired, it logs in again and repeats the
// request.
func (c *Client) Do(ctx context.Context, r Request) error {
	release, err := c.transport.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("waiting for other requests: %w", err)
	}
	defer release()
	if c.isToken() {
		return c.send(ctx, r, c.tokenHeader())
	}
	t, err := c.login(ctx, ticket{})
	if err != nil {
		return err
	}
	if err = c.send(ctx, r, t.header()); !IsStatus(err, http.StatusUnauthorized) {
		return err
	}
	if t, err = c.login(ctx, t); err != nil {
		return err
	}
	// Another cluster with the same user may respond at the address: it does not accept
	// the tickets of the first one.
	if id, err := c.readID(ctx, t.header()); err != nil || c.id.Load() != nil && id != *c.id.Load() {
		return cmp.Or(err, ErrOtherCluster)
	}
	return c.send(ctx, r, t.header())
}

// ErrOtherCluster is returned if another Proxmox VE cluster than the identified one
// responds at the address. The request was not sent.
var ErrOtherCluster = errors.New("another Proxmox VE cluster responds at the address")

// rootCA is the file name of the CA that a Proxmox VE cluster makes for itself.
const rootCA = "pve-root-ca.pem"

// Identify returns the ID of the Proxmox VE cluster, the fingerprint of its CA, and its
// version. Until the next call, requests fail with ErrOtherCluster if another one responds.
func (c *Client) Identify(ctx context.Context) (id, version string, err error) {
	c.id.Store(nil)
	var v struct {
		Version string `json:"version"`
	}
	if err := c.Do(ctx, Request{Method: http.MethodGet, Path: []string{"version"}, Into: &v}); err != nil {
		return "", "", err
	}
	header := c.tokenHeader()
	if !c.isToken() {
		t, err := c.login(ctx, ticket{})
		if err != nil {
			return "", "", err
		}
		header = t.header()
	}
	if id, err = c.readID(ctx, header); err == nil {
		c.id.Store(&id)
	}
	return id, v.Version, err
}

// readID reads the fingerprint of the CA.
func (c *Client) readID(ctx context.Context, header http.Header) (string, error) {
	var certificates []struct {
		File        string `json:"filename"`
		Fingerprint string `json:"fingerprint"`
	}
	err := c.send(ctx, Request{Method: http.MethodGet, Path: []string{"nodes", "localhost", "certificates", "info"}, Into: &certificates}, header)
	for _, found := range certificates {
		if found.File == rootCA {
			return found.Fingerprint, nil
		}
	}
	return "", err
}

func (c *Client) tokenHeader() http.Header {
	return http.Header{"Authorization": {"PVEAPIToken=" + c.endpoint.Username + "=" + c.endpoint.Password}}
}

func (t ticket) header() http.Header {
	return http.Header{"Cookie": {"PVEAuthCookie=" + url.QueryEscape(t.Ticket)}, "Csrfpreventiontoken": {t.CSRF}}
}

// login returns the ticket, and logs in if there is none or only the stale one.
func (c *Client) login(ctx context.Context, stale ticket) (t ticket, err error) {
	select {
	case t = <-c.ticket:
	case <-ctx.Done():
		return t, fmt.Errorf("waiting for the login: %w", ctx.Err())
	}
	defer func() { c.ticket <- t }()
	if t.Ticket != "" && t != stale {
		return t, nil
	}
	t = ticket{}
	err = c.toServers(ctx, func(server string) error {
		return c.endpoint.Guard(ctx, server, func() (err error) {
			t, err = c.loginAt(ctx, server)
			return err
		})
	})
	return t, err
}

// loginAt logs in at a server.
func (c *Client) loginAt(ctx context.Context, server string) (t ticket, err error) {
	err = c.exchange(ctx, Request{
		Method: http.MethodPost, Path: []string{"access", "ticket"}, Into: &t,
		Form: url.Values{"username": {c.endpoint.Username}, "password": {c.endpoint.Password}},
	}, nil, server)
	if err == nil && t.CSRF == "" {
		// A second factor is required: the ticket is only half of a login.
		err = &Error{Status: http.StatusUnauthorized, Detail: "the user needs a second factor: use an API token"}
	}
	if err != nil {
		return ticket{}, err
	}
	return t, nil
}

// Login logs in with the password, or checks the API token.
func (c *Client) Login(ctx context.Context) error {
	if c.isToken() {
		return nil // the next request checks it
	}
	_, err := c.login(ctx, ticket{})
	return err
}

// Logout forgets the ticket, which the API cannot revoke, and closes idle connections.
func (c *Client) Logout() {
	<-c.ticket
	c.ticket <- ticket{}
	c.transport.Close()
}

// send sends a request to the server in use, and to the next ones while servers do
// not accept connections.
func (c *Client) send(ctx context.Context, r Request, header http.Header) error {
	return c.toServers(ctx, func(server string) error { return c.exchange(ctx, r, header.Clone(), server) })
}

// toServers calls exchange with the server in use, and with the next ones while servers do
// not accept connections.
func (c *Client) toServers(ctx context.Context, exchange func(server string) error) (err error) {
	for range c.endpoint.Servers {
		at := c.server.Load()
		if err = exchange(c.endpoint.Servers[at]); !IsDown(err) || ctx.Err() != nil {
			return err
		}
		c.server.CompareAndSwap(at, (at+1)%int32(len(c.endpoint.Servers)))
		if !transport.IsNotSent(err) {
			return err // the request may have been executed
		}
	}
	return err
}

// exchange sends a request to a server and reads the response.
func (c *Client) exchange(ctx context.Context, r Request, header http.Header, server string) error {
	if header == nil {
		header = http.Header{}
	}
	target, kind := "https://"+server+apiPath, "application/x-www-form-urlencoded"
	path := make([]string, 0, len(r.Path)+1)
	path = append(path, target)
	for _, part := range r.Path {
		path = append(path, url.PathEscape(part))
	}
	target = strings.Join(path, "/")
	var body []byte
	switch {
	case r.File != nil:
		var err error
		if body, kind, err = multipartBody(r); err != nil {
			return fmt.Errorf("making upload: %w", err)
		}
	case r.Method != http.MethodGet && r.Method != http.MethodDelete:
		body = []byte(r.Form.Encode())
	case len(r.Form) > 0:
		target += "?" + r.Form.Encode()
	}
	if body != nil {
		header.Set("Content-Type", kind)
	}
	limits := transport.Limits{Pattern: masked(r.Path), Bytes: maxResponse, Total: timeout, Part: timeout}
	if _, list := r.Into.(*Resources); list {
		limits.Bytes = maxList
	}
	res, content, err := c.transport.Send(ctx, r.Method, target, header, body, limits) //nolint:bodyclose // Send closes it
	if err == nil {
		err = decode(res, content, r.Into)
	}
	if r.Guest && (transport.IsTooLarge(err) || errors.Is(err, errNoAPI)) {
		return &Error{Status: http.StatusInternalServerError, Detail: "the answer of the guest agent is too large, or not that of the command"}
	}
	return err //nolint:wrapcheck // it names the server
}

// uploadFields are the parameters of an upload in the only order in which a server
// reads them, before the file.
var uploadFields = []string{"content", "checksum-algorithm", "checksum"}

// multipartBody returns the body of an upload.
func multipartBody(r Request) ([]byte, string, error) {
	body := &bytes.Buffer{}
	w := multipart.NewWriter(body)
	for _, name := range uploadFields {
		if err := w.WriteField(name, r.Form.Get(name)); err != nil {
			return nil, "", err
		}
	}
	part, err := w.CreateFormFile("filename", r.FileName)
	if err == nil {
		_, err = part.Write(r.File)
	}
	err = errors.Join(err, w.Close())
	return body.Bytes(), w.FormDataContentType(), err
}

// errNoAPI is the error of a response that is not one of the API.
var errNoAPI = &Error{Status: http.StatusBadGateway, Detail: "the server sent no JSON of the API"}

// decode reads the data or the error of a response.
func decode(res *http.Response, body []byte, into any) error {
	var answer struct {
		Data    json.RawMessage   `json:"data"`
		Message string            `json:"message"`
		Errors  map[string]string `json:"errors"`
	}
	err := json.Unmarshal(body, &answer)
	if res.StatusCode != http.StatusOK {
		_, phrase, _ := strings.Cut(res.Status, " ")
		return newError(res.StatusCode, answer.Message, phrase, answer.Errors)
	}
	if err == nil && into != nil && len(answer.Data) > 0 && string(answer.Data) != "null" {
		err = json.Unmarshal(answer.Data, into)
	}
	if err != nil {
		return errNoAPI
	}
	return nil
}

// named are the parts of a path that a name or an ID follows.
var named = []string{"nodes", "qemu", "storage", "content", "tasks", "resources", "rules"}

// masked returns a path with {} for names and IDs.
func masked(path []string) string {
	out := slices.Clone(path)
	for i := 1; i < len(out); i++ {
		if slices.Contains(named, path[i-1]) {
			out[i] = "{}"
		}
	}
	return "/" + strings.Join(out, "/")
}
