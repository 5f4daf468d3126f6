package ovirt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
)

const (
	apiPath    = "/ovirt-engine/api"
	tokenPath  = "/ovirt-engine/sso/oauth/token"
	logoutPath = "/ovirt-engine/services/sso-logout"

	// timeout limits every request except lists. Lists are limited by longest,
	// and by timeout between two parts of the response: an engine needs minutes
	// to list thousands of VMs.
	timeout = 30 * time.Second
	longest = 5 * time.Minute
	// logoutTimeout limits the request that revokes a token.
	logoutTimeout = 2 * time.Second
	// maxAnswer limits a response in bytes, and maxList the response to a list
	// of VMs: an engine sends about 7 KiB for each.
	maxAnswer = 8 << 20
	maxList   = 64 << 20
	// dialTimeout limits the time for a connection.
	dialTimeout = 10 * time.Second
)

// Endpoint is an engine with its credentials.
type Endpoint struct {
	// Server is a host name or address, with a port if it is not 443.
	Server             string
	Username, Password string
	Trust              endpoints.Trust
	// Filter restricts responses to the objects that the user has permissions
	// for. Users without an administrative role must set it.
	Filter bool
	// Guard, if set, calls login, or returns an error instead.
	Guard func(ctx context.Context, login func() error) error
}

// Client connects to one engine as one user.
type Client struct {
	endpoint  Endpoint
	transport *transport.Client
	// timeout and longest limit requests; tests change them.
	timeout, longest time.Duration
	// login contains the state of the login. The goroutine that takes it may log
	// in; others wait.
	login chan login
}

// login is the state of a client's login.
type login struct {
	token string
	// identified is set once Identify has read the ID of the engine. From then on
	// only tokens of the engine with this ID are used.
	identified bool
	engineID   string
}

// NewClient returns a client that is not logged in.
func NewClient(e Endpoint, meter transport.Meter) (*Client, error) {
	t, err := transport.New(transport.Options{Trust: e.Trust, Servers: []string{e.Server}, Dial: dialTimeout, Meter: meter, Peer: "the engine"})
	if err != nil {
		return nil, err
	}
	c := &Client{endpoint: e, transport: t, timeout: timeout, longest: longest, login: make(chan login, 1)}
	c.login <- login{}
	return c, nil
}

// Request is one request of the API.
type Request struct {
	Method string
	// Path is below the API, such as /vms. Its parts are escaped.
	Path  []string
	Query url.Values
	// Body is sent as XML, if it is not nil.
	Body any
	// Into receives the parsed response, if it is not nil.
	Into any
}

// Do sends a request. It replaces an expired token once.
func (c *Client) Do(ctx context.Context, r Request) error {
	release, err := c.transport.Acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	var body []byte
	if r.Body != nil {
		if body, err = xml.Marshal(r.Body); err != nil {
			return fmt.Errorf("encoding request: %w", err)
		}
	}
	stale := ""
	for {
		token, err := c.Login(ctx, stale)
		if err != nil {
			return err
		}
		err = c.send(ctx, r, body, token)
		if !errors.Is(err, errToken) || stale != "" {
			return err
		}
		stale = token
	}
}

// Uses reports whether a request names an object by its ID.
func (r *Request) Uses(id string) bool {
	if slices.Contains(r.Path, id) {
		return true
	}
	body, err := xml.Marshal(r.Body)
	return err == nil && bytes.Contains(body, []byte(`"`+id+`"`))
}

// errToken is the cause of an Error for a token that the engine no longer
// accepts.
var errToken = errors.New("the engine does not accept the session's token")

// ErrOtherEngine is returned if another engine than the identified one responds
// at the address. The request was not sent.
var ErrOtherEngine = errors.New("another engine responds at the address")

// Identify reads the engine's description of itself. Until the next call, all
// requests fail with ErrOtherEngine if another engine responds at the address.
func (c *Client) Identify(ctx context.Context) (*Object, error) {
	l, err := c.takeLogin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { c.login <- l }()
	var api *Object
	if l.token != "" {
		if api, err = c.describe(ctx, l.token); err != nil && !errors.Is(err, errToken) {
			return nil, err
		}
	}
	if api == nil {
		var token string
		l.token = ""
		if token, err = c.authenticate(ctx); err != nil {
			return nil, err
		}
		if api, err = c.describe(ctx, token); err != nil {
			_ = c.revoke(ctx, token)
			return nil, err
		}
		l.token = token
	}
	l.identified, l.engineID = true, instanceID(api)
	return api, nil
}

// Login returns the token, and logs in if there is none or only the stale one.
// A new token of another engine than the identified one is revoked.
func (c *Client) Login(ctx context.Context, stale string) (string, error) {
	l, err := c.takeLogin(ctx)
	if err != nil {
		return "", err
	}
	defer func() { c.login <- l }()
	if l.token != "" && l.token != stale {
		return l.token, nil
	}
	l.token = ""
	token, err := c.authenticate(ctx)
	if err != nil {
		return "", err
	}
	if l.identified {
		if err := c.verify(ctx, token, l.engineID); err != nil {
			_ = c.revoke(ctx, token)
			return "", err
		}
	}
	l.token = token
	return token, nil
}

// takeLogin takes the state of the login. The caller puts it back.
func (c *Client) takeLogin(ctx context.Context) (login, error) {
	select {
	case l := <-c.login:
		return l, nil
	case <-ctx.Done():
		return login{}, ctx.Err()
	}
}

// verify returns ErrOtherEngine unless the token is of the engine with an ID.
func (c *Client) verify(ctx context.Context, token, engineID string) error {
	api, err := c.describe(ctx, token)
	if err == nil && instanceID(api) != engineID {
		err = ErrOtherEngine
	}
	return err
}

// describe reads the engine's description of itself.
func (c *Client) describe(ctx context.Context, token string) (*Object, error) {
	var api Object
	if err := c.send(ctx, Request{Method: http.MethodGet, Into: &api}, nil, token); err != nil {
		return nil, err
	}
	return &api, nil
}

// instanceID is the ID that an engine generated for itself. Old engines have none.
func instanceID(api *Object) string {
	if api.ProductInfo == nil {
		return ""
	}
	return api.ProductInfo.InstanceID
}

// authenticate requests a token, if Guard allows it.
func (c *Client) authenticate(ctx context.Context) (token string, err error) {
	login := func() (err error) {
		token, err = c.requestToken(ctx)
		return err
	}
	if c.endpoint.Guard != nil {
		err = c.endpoint.Guard(ctx, login)
	} else {
		err = login()
	}
	return token, err
}

// requestToken requests a token.
func (c *Client) requestToken(ctx context.Context) (string, error) {
	form := url.Values{
		"grant_type": {"password"}, "scope": {"ovirt-app-api"},
		"username": {c.endpoint.Username}, "password": {c.endpoint.Password},
	}
	status, answer, err := c.post(ctx, tokenPath, form)
	if err != nil {
		return "", err
	}
	var parsed struct {
		Token string `json:"access_token"`
		Code  string `json:"error_code"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal(answer, &parsed); err != nil {
		return "", &Error{Status: status, Detail: fmt.Sprintf("the token endpoint answered %d and no JSON", status), page: true}
	}
	if parsed.Token == "" {
		detail := strings.ReplaceAll(strings.TrimRight(parsed.Error, ". "), c.endpoint.Username, "…")
		return "", &Error{Status: http.StatusUnauthorized, Detail: cmp.Or(detail, parsed.Code, "the engine returned no token")}
	}
	return parsed.Token, nil
}

// Logout revokes the token. The client can still be used: it logs in again.
func (c *Client) Logout(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, logoutTimeout)
	defer cancel()
	l, err := c.takeLogin(ctx)
	if err != nil {
		return err
	}
	token := l.token
	l.token = ""
	c.login <- l
	if token == "" {
		return nil
	}
	defer c.transport.Close()
	return c.revoke(ctx, token)
}

// revoke revokes a token, also after the end of ctx.
func (c *Client) revoke(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logoutTimeout)
	defer cancel()
	_, _, err := c.post(ctx, logoutPath, url.Values{"scope": {"ovirt-app-api"}, "token": {token}})
	return err
}

// post sends a form to one of the URLs outside the API.
func (c *Client) post(ctx context.Context, path string, form url.Values) (int, []byte, error) {
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}}
	return c.exchange(ctx, http.MethodPost, path, path, header, []byte(form.Encode()), maxAnswer)
}

// send sends a request with a token and reads the response.
func (c *Client) send(ctx context.Context, r Request, body []byte, token string) error {
	parts, pattern := []string{apiPath}, []string{""}
	for _, part := range r.Path {
		parts, pattern = append(parts, url.PathEscape(part)), append(pattern, masked(part))
	}
	path := strings.Join(parts, "/")
	if len(r.Query) > 0 {
		path = fmt.Sprintf("%s?%s", path, r.Query.Encode())
	}
	header := http.Header{
		"Authorization": {"Bearer " + token}, "Version": {"4"},
		"Accept": {"application/xml"}, "Content-Type": {"application/xml"},
	}
	if c.endpoint.Filter {
		header.Set("Filter", "true")
	}
	limit := maxAnswer
	if r.Method == http.MethodGet && len(r.Path) == 1 {
		limit = maxList
	}
	status, answer, err := c.exchange(ctx, r.Method, path, strings.Join(pattern, "/"), header, body, limit)
	if err != nil {
		return err
	}
	switch {
	case status == http.StatusUnauthorized, status >= 300 && status < 400:
		return &Error{Status: http.StatusUnauthorized, Detail: errToken.Error(), cause: errToken}
	case status >= 400:
		return refusal(status, answer)
	case failedAction(answer):
		return refusal(http.StatusConflict, answer)
	case r.Into == nil:
		return nil
	}
	if err := xml.Unmarshal(answer, r.Into); err != nil {
		return &Error{Status: status, Detail: fmt.Sprintf("the engine answered %d and no XML of the API", status), page: true}
	}
	return nil
}

// exchange sends a body and reads the response, up to limit bytes.
func (c *Client) exchange(
	ctx context.Context, method, path, pattern string, header http.Header, body []byte, limit int,
) (int, []byte, error) {
	l := transport.Limits{Pattern: pattern, Bytes: limit, Total: c.timeout, Part: c.timeout}
	if limit == maxList {
		l.Total = c.longest
	}
	// Causes are detected by the text of messages, which engines translate:
	// without this header those of zVirt respond in Russian.
	header.Set("Accept-Language", "en-US")
	res, answer, err := c.transport.Send(ctx, method, "https://"+c.endpoint.Server+path, header, body, l) //nolint:bodyclose // Send closes it
	if err != nil {
		return 0, nil, err
	}
	return res.StatusCode, answer, nil
}

// masked is a part of a path with {} for an ID.
func masked(part string) string {
	if strings.ContainsAny(part, "0123456789-") {
		return "{}"
	}
	return part
}
