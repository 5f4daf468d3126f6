package vcenter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25"

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

// CallREST sends requests to the REST API. It logs in before the first
// request, and again when vCenter reports that the session is not
// authenticated. The error is a *restError if vCenter rejected the request,
// but not if it rejected the credentials.
func (s *Session) CallREST(ctx context.Context, request func(context.Context, *rest.Client) error) error {
	for again := true; ; again = false {
		c, login, err := s.Client(ctx, hypervisor.Key{})
		if err != nil {
			return err
		}
		began := time.Now()
		api, err := s.openREST(ctx, c)
		if err == nil {
			err = request(ctx, api)
		}
		switch {
		case RESTStatus(err) == http.StatusUnauthorized && again:
			s.dropREST(api)
			continue
		case err != nil && IsTimeout(err) && ctx.Err() == nil && !s.conn.hasRespondedSince(began) && isHanging(ctx, c):
			s.reconnect(login)
		}
		return err
	}
}

// openREST returns the login at the REST API, and logs in if there is none.
func (s *Session) openREST(ctx context.Context, c *vim25.Client) (*rest.Client, error) {
	s.mu.Lock()
	have := s.restAPI
	s.mu.Unlock()
	if have != nil && have.of == c {
		return have.client, nil
	}
	done := s.flights.DoChan(fmt.Sprintf("%p", c), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.conn.timeouts.Request)
		defer cancel()
		return s.loginREST(ctx, c)
	})
	select {
	case res := <-done:
		api, _ := res.Val.(*rest.Client)
		return api, res.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("logging in at the REST API: %w", ctx.Err())
	}
}

// loginREST logs in at the REST API, unless the credentials were rejected a
// short time ago. A caller right after another flight gets the result of that
// flight.
func (s *Session) loginREST(ctx context.Context, c *vim25.Client) (*rest.Client, error) {
	s.mu.Lock()
	have, backoff := s.restAPI, s.restBackoff
	s.mu.Unlock()
	if have != nil && have.of == c {
		return have.client, nil
	}
	if err := backoff.pendingError(time.Now()); err != nil {
		return nil, err
	}
	api := rest.NewClient(c)
	var next http.RoundTripper = api.DefaultTransport()
	if s.conn.wrap != nil {
		next = s.conn.wrap(next)
	}
	api.Transport = &restTransport{next: boundedTransport{next: next}, conn: s.conn}
	api.CheckRedirect = rejectRedirect
	err := api.Login(ctx, url.UserPassword(s.Endpoint.Username, s.Endpoint.Password))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case RESTStatus(err) == http.StatusUnauthorized:
		// This is no *restError, which means that a request was rejected.
		e := hypervisor.Failure(infrav1.CredentialsInvalidReason, "vCenter %s rejected the credentials at its REST API: %v", s.Endpoint.Server, RootCause(err))
		s.restBackoff = backoff.next(e, time.Now(), s.conn.timeouts)
		return nil, e
	case err != nil:
		return nil, fmt.Errorf("logging in at the REST API: %w", err)
	}
	s.restAPI, s.restBackoff = &restLogin{client: api, of: c}, loginBackoff{}
	return api, nil
}

// dropREST drops a login that has ended.
func (s *Session) dropREST(api *rest.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.restAPI != nil && s.restAPI.client == api {
		s.restAPI = nil
	}
}

// closeREST ends the login at the REST API, if there is one.
func (s *Session) closeREST(ctx context.Context) {
	s.mu.Lock()
	have := s.restAPI
	s.restAPI = nil
	s.mu.Unlock()
	if have != nil {
		_ = have.client.Logout(ctx)
		have.client.CloseIdleConnections()
	}
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

// RESTError is an error response of the REST API.
type RESTError struct {
	status int
	// Kind is vCenter's name of the error, such as
	// com.vmware.vapi.std.errors.not_found.
	Kind    string
	message string
}

func (f *RESTError) Error() string { return f.message }

// newRESTError parses an error response. The two generations of the API use
// slightly different formats.
func newRESTError(status int, body []byte) *RESTError {
	type text struct {
		Default string `json:"default_message"`
	}
	var answer struct {
		Type     string `json:"type"`
		Kind     string `json:"error_type"`
		Messages []text `json:"messages"`
		Value    struct {
			Messages []text `json:"messages"`
		} `json:"value"`
	}
	f := &RESTError{status: status, message: fmt.Sprintf("vCenter's REST API returned %d %s", status, http.StatusText(status))}
	if json.Unmarshal(body, &answer) != nil {
		return f
	}
	f.Kind = answer.Type + answer.Kind
	var messages []string
	for _, m := range append(answer.Messages, answer.Value.Messages...) {
		if m.Default != "" {
			messages = append(messages, strings.TrimRight(m.Default, ". "))
		}
	}
	if len(messages) > 0 {
		f.message = strings.Join(messages, "; ")
	}
	return f
}

// RESTReason returns the condition reason for a request that the REST API
// rejected.
func RESTReason(err error) string {
	if RESTStatus(err) == http.StatusForbidden {
		return infrav1.PermissionDeniedReason
	}
	return infrav1.HypervisorErrorReason
}

// RESTStatus returns the HTTP status of a request that the REST API rejected,
// or 0.
func RESTStatus(err error) int {
	if f, ok := errors.AsType[*RESTError](err); ok {
		return f.status
	}
	return 0
}

// ConvertRESTError converts an error of the REST API to an Error with vCenter's
// message.
func ConvertRESTError(err error) error {
	f, ok := errors.AsType[*RESTError](err)
	if !ok {
		return err
	}
	return &hypervisor.Error{Reason: RESTReason(f), Err: fmt.Errorf("%w", f)}
}
