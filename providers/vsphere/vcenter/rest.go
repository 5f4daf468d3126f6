package vcenter

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// restLogin is a login at the REST API. It is valid as long as the SOAP client
// for which it was created.
type restLogin struct {
	client *rest.Client
	of     *vim25.Client
}

// loginBackoff is a login that vCenter rejected. No caller tries it again
// before the delay is over: vCenter locks accounts after a few failed logins
// within minutes, and the SOAP session stays valid when a password is changed,
// so machines keep sending requests.
type loginBackoff struct {
	err   *hypervisor.Error
	delay time.Duration
	until time.Time
}

// next returns the backoff after r for another rejected login.
func (r loginBackoff) next(err *hypervisor.Error, now time.Time, p Timeouts) loginBackoff {
	delay := min(max(r.delay*2, p.MinLoginRetry), p.MaxLoginRetry)
	return loginBackoff{err: err, delay: delay, until: now.Add(delay)}
}

// pendingError returns the error of the rejected login, unless it can be tried
// again.
func (r loginBackoff) pendingError(now time.Time) error {
	if r.err == nil || !now.Before(r.until) {
		return nil
	}
	return r.err
}

// restAPI is the login at the REST API of one vCenter, if one was needed.
type restAPI struct {
	endpoint Endpoint
	conn     *connection
	// flights has one login at a time for each client.
	flights singleflight.Group
	login   atomic.Pointer[restLogin]
	// backoff is the last login that was rejected.
	backoff atomic.Pointer[loginBackoff]
}

// get returns the login of a client, or nil.
func (r *restAPI) get(c *vim25.Client) *rest.Client {
	if have := r.login.Load(); have != nil && have.of == c {
		return have.client
	}
	return nil
}

// open returns the login of a client, and logs in if there is none.
func (r *restAPI) open(ctx context.Context, c *vim25.Client) (*rest.Client, error) {
	if have := r.get(c); have != nil {
		return have, nil
	}
	done := r.flights.DoChan(fmt.Sprintf("%p", c), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.conn.timeouts.Request)
		defer cancel()
		return r.logIn(ctx, c)
	})
	select {
	case res := <-done:
		api, _ := res.Val.(*rest.Client)
		return api, res.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("logging in at the REST API: %w", ctx.Err())
	}
}

// logIn logs in, unless the credentials were rejected a short time ago. A
// caller right after another flight gets the result of that flight.
func (r *restAPI) logIn(ctx context.Context, c *vim25.Client) (*rest.Client, error) {
	if have := r.get(c); have != nil {
		return have, nil
	}
	backoff := ptr.Deref(r.backoff.Load(), loginBackoff{})
	if err := backoff.pendingError(time.Now()); err != nil {
		return nil, err
	}
	api := rest.NewClient(c)
	var next http.RoundTripper = api.DefaultTransport()
	if r.conn.wrap != nil {
		next = r.conn.wrap(next)
	}
	api.Transport = &restTransport{next: boundedTransport{next: next}, conn: r.conn}
	api.CheckRedirect = rejectRedirect
	err := api.Login(ctx, url.UserPassword(r.endpoint.Username, r.endpoint.Password))
	switch {
	case RESTStatus(err) == http.StatusUnauthorized:
		// This is no *RESTError, which means that a request was rejected.
		e := hypervisor.Failure(infrav1.CredentialsInvalidReason, "vCenter %s rejected the credentials at its REST API: %v", r.endpoint.Server, RootCause(err))
		backoff = backoff.next(e, time.Now(), r.conn.timeouts)
		r.backoff.Store(&backoff)
		return nil, e
	case err != nil:
		return nil, fmt.Errorf("logging in at the REST API: %w", err)
	}
	r.backoff.Store(nil)
	r.login.Store(&restLogin{client: api, of: c})
	return api, nil
}

// drop drops a login that has ended.
func (r *restAPI) drop(api *rest.Client) {
	if have := r.login.Load(); have != nil && have.client == api {
		r.login.CompareAndSwap(have, nil)
	}
}

// logOut ends the login, if there is one.
func (r *restAPI) logOut(ctx context.Context) error {
	have := r.login.Swap(nil)
	if have == nil {
		return nil
	}
	defer have.client.CloseIdleConnections()
	if err := have.client.Logout(ctx); RESTStatus(err) != http.StatusUnauthorized {
		return err
	}
	// The login had ended before.
	return nil
}

// restTransport sends the requests of the REST API, and converts an error
// response to an error with vCenter's message.
type restTransport struct {
	next http.RoundTripper
	conn *connection
}

// RoundTrip sends a request and reads the whole response, so that its deadline
// covers all of it.
func (t *restTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	var answer *http.Response
	err := t.conn.do(req.Context(), RESTMethod(req), func(ctx context.Context) error {
		res, err := t.next.RoundTrip(req.WithContext(ctx))
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return fmt.Errorf("reading the response of vCenter: %w", err)
		}
		if res.StatusCode >= http.StatusBadRequest {
			return newRESTError(res.StatusCode, body)
		}
		whole := *res
		whole.Body = io.NopCloser(bytes.NewReader(body))
		answer = &whole
		return nil
	})
	return answer, err
}

// RESTMethod returns the name of a request in metrics, without IDs of objects.
func RESTMethod(req *http.Request) string {
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/"), "/")
	for i, part := range parts {
		if strings.ContainsAny(part, ":") || strings.Count(part, "-") == 4 || strings.Contains(part, "domain-c") {
			parts[i] = "{id}"
		}
	}
	name := req.Method + " /" + strings.Join(parts, "/")
	query := req.URL.Query()
	if action := cmp.Or(query.Get("~action"), query.Get("action")); action != "" {
		name += "?" + action
	}
	return name
}
