package vault

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"
)

const (
	// timeout limits a request.
	timeout = 10 * time.Second
	// maxAnswer limits an answer, in bytes.
	maxAnswer = 1 << 20
	// minToken is the shortest life of a token that is worth keeping.
	minToken = 10 * time.Second
)

// Method is how a manager signs in.
type Method string

const (
	// AppRole signs in with a role ID and a secret ID.
	AppRole Method = "approle"
	// Kubernetes signs in with the token of a service account.
	Kubernetes Method = "kubernetes"
	// Certificate signs in with a client certificate.
	Certificate Method = "cert"
)

// Credentials are those of a manager.
type Credentials struct {
	Method Method
	// Path is the path of the auth method, below auth.
	Path string
	// Role is the role to sign in for. AppRole needs none.
	Role string
	// RoleID and SecretID are those of AppRole.
	RoleID, SecretID string
	// Token returns a token of the service account.
	Token func() (string, error)
	// Pair is the client certificate.
	Pair *tls.Certificate
}

// Config is a server with credentials.
type Config struct {
	// Server is its URL, and Namespace a namespace of the server, which may be empty.
	Server, Namespace string
	// CABundle has the CAs of the server's certificate, in PEM. If not set, those of
	// the system are used.
	CABundle    []byte
	Credentials Credentials
}

// Client is a client of one server. It signs in with the first request.
type Client struct {
	api         *api.Client
	credentials Credentials

	mu sync.Mutex
	// renewAt is when a new token is needed.
	renewAt time.Time
}

// New returns a client.
func New(c Config) (*Client, error) {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   timeout,
		ResponseHeaderTimeout: timeout,
		MaxIdleConnsPerHost:   2, //nolint:mnd // the managers send few requests
		IdleConnTimeout:       time.Minute,
		ForceAttemptHTTP2:     true,
	}
	if len(c.CABundle) > 0 {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(c.CABundle) {
			return nil, errors.New("the CA bundle has no certificate in PEM")
		}
	}
	if c.Credentials.Pair != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{*c.Credentials.Pair}
	}
	client, err := api.NewClient(&api.Config{
		Address: c.Server, Timeout: timeout,
		HttpClient:       &http.Client{Transport: limitedTransport{transport}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		DisableRedirects: true, MaxRetries: 0, CheckRetry: func(context.Context, *http.Response, error) (bool, error) { return false, nil },
	})
	if err != nil {
		return nil, fmt.Errorf("making a client of StarVault: %w", err)
	}
	// The library reads these from the environment.
	client.ClearToken()
	client.ClearNamespace()
	if c.Namespace != "" {
		client.SetNamespace(c.Namespace)
	}
	return &Client{api: client, credentials: c.Credentials}, nil
}

// limitedTransport limits the size of answers.
type limitedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &limitedBody{Reader: io.LimitReader(answer.Body, maxAnswer), Closer: answer.Body}
	}
	return answer, err //nolint:wrapcheck // the client wraps it
}

type limitedBody struct {
	io.Reader
	io.Closer
}

// Write writes data to a path, and returns the answer, which may be nil.
func (c *Client) Write(ctx context.Context, path string, data map[string]any) (*api.Secret, error) {
	return c.do(ctx, path, func(ctx context.Context, client *api.Client) (*api.Secret, error) {
		return client.Logical().WriteWithContext(ctx, path, data)
	})
}

// Wrap writes data to a path, and returns the token with which the answer can be
// read once, within ttl.
func (c *Client) Wrap(ctx context.Context, path string, data map[string]any, ttl time.Duration) (string, error) {
	answer, err := c.do(ctx, path, func(ctx context.Context, client *api.Client) (*api.Secret, error) {
		request := client.NewRequest(http.MethodPut, "/v1/"+path)
		request.WrapTTL = strconv.Itoa(int(ttl.Seconds())) + "s"
		if err := request.SetJSONBody(data); err != nil {
			return nil, err //nolint:wrapcheck // do classifies it
		}
		//nolint:staticcheck // the other functions of the library have no way to wrap one answer
		answer, err := client.RawRequestWithContext(ctx, request)
		if err != nil {
			return nil, err //nolint:wrapcheck // do classifies it
		}
		defer func() { _ = answer.Body.Close() }()
		return api.ParseSecret(answer.Body)
	})
	if err != nil {
		return "", err
	}
	if answer == nil || answer.WrapInfo == nil || answer.WrapInfo.Token == "" {
		return "", &Error{Problem: Refused, Path: path, Detail: "the server did not wrap its answer"}
	}
	return answer.WrapInfo.Token, nil
}

// Read reads a path. The answer is nil if there is nothing.
func (c *Client) Read(ctx context.Context, path string) (*api.Secret, error) {
	return c.do(ctx, path, func(ctx context.Context, client *api.Client) (*api.Secret, error) {
		return client.Logical().ReadWithContext(ctx, path)
	})
}

// List lists a path. The answer is nil if there is nothing.
func (c *Client) List(ctx context.Context, path string) (*api.Secret, error) {
	return c.do(ctx, path, func(ctx context.Context, client *api.Client) (*api.Secret, error) {
		return client.Logical().ListWithContext(ctx, path)
	})
}

// Delete deletes the object at a path.
func (c *Client) Delete(ctx context.Context, path string) error {
	_, err := c.do(ctx, path, func(ctx context.Context, client *api.Client) (*api.Secret, error) {
		return client.Logical().DeleteWithContext(ctx, path)
	})
	return err
}

// do sends a request with a valid token. A token may have been revoked, so a request
// that is not allowed is repeated once with a new one.
func (c *Client) do(ctx context.Context, path string, send func(context.Context, *api.Client) (*api.Secret, error)) (*api.Secret, error) {
	for first := true; ; first = false {
		client, renewed, err := c.signedIn(ctx)
		if err != nil {
			return nil, err
		}
		answer, err := send(ctx, client)
		if err == nil {
			return answer, nil
		}
		if err = classify(path, false, err); !first || renewed || !Is(err, Forbidden) {
			return nil, err
		}
		c.forgetToken()
	}
}

func (c *Client) forgetToken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewAt = time.Time{}
}

// signedIn returns the client with a valid token, and whether the token is new.
func (c *Client) signedIn(ctx context.Context) (*api.Client, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.renewAt) {
		return c.api, false, nil
	}
	path := "auth/" + c.credentials.Path + "/login"
	data, err := c.login()
	if err != nil {
		return nil, false, &Error{Problem: CredentialsRejected, Path: path, Detail: limited(err.Error())}
	}
	c.api.ClearToken()
	answer, err := c.api.Logical().WriteWithContext(ctx, path, data)
	if err != nil {
		return nil, false, classify(path, true, err)
	}
	if answer == nil || answer.Auth == nil || answer.Auth.ClientToken == "" {
		return nil, false, &Error{Problem: CredentialsRejected, Path: path, Detail: "the server returned no token"}
	}
	c.api.SetToken(answer.Auth.ClientToken)
	life := time.Duration(answer.Auth.LeaseDuration) * time.Second
	c.renewAt = time.Now().Add(max(cmp.Or(life, time.Hour)*2/3, minToken)) //nolint:mnd // two thirds of its life
	return c.api, true, nil
}

// login returns the data with which a manager signs in.
func (c *Client) login() (map[string]any, error) {
	switch c.credentials.Method {
	case AppRole:
		return map[string]any{"role_id": c.credentials.RoleID, "secret_id": c.credentials.SecretID}, nil
	case Kubernetes:
		token, err := c.credentials.Token()
		if err != nil {
			return nil, err //nolint:wrapcheck // signedIn wraps it
		}
		return map[string]any{"role": c.credentials.Role, "jwt": token}, nil
	case Certificate:
		return map[string]any{"name": c.credentials.Role}, nil
	}
	return nil, fmt.Errorf("the auth method %q is not supported", c.credentials.Method)
}
