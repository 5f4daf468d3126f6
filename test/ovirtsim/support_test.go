package ovirtsim

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// engine is a server whose time stands still, and a session with it.
type engine struct {
	*Server

	t      *testing.T
	clock  *ManualClock
	client *http.Client
	token  string
	// speaks is the header Accept-Language of requests.
	speaks string
}

const templateName = "node"

// newEngine starts a server with a template of 10 GiB.
func newEngine(t *testing.T, change ...func(*Options)) *engine {
	t.Helper()
	clock := NewManualClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	opts := Options{Clock: clock, Inventory: Inventory{Templates: []TemplateSpec{{Name: templateName, DiskGiB: 10}}}}
	for _, f := range change {
		f(&opts)
	}
	s, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(s.CABundle))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	e := &engine{Server: s, t: t, clock: clock, client: client, speaks: english}
	e.login()
	return e
}

// signIn requests a token.
func (e *engine) signIn(user, password string) (status int, answer map[string]string) {
	e.t.Helper()
	form := url.Values{"grant_type": {"password"}, "scope": {"ovirt-app-api"}, "username": {user}, "password": {password}}
	r, err := http.NewRequestWithContext(e.t.Context(), http.MethodPost, strings.TrimSuffix(e.URL, apiPath)+tokenPath, strings.NewReader(form.Encode()))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := e.client.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		e.t.Fatal(err)
	}
	return response.StatusCode, answer
}

func (e *engine) login() {
	e.t.Helper()
	status, answer := e.signIn(DefaultUsername, DefaultPassword)
	if status != http.StatusOK {
		e.t.Fatalf("login: %d %v", status, answer)
	}
	e.token = answer["access_token"]
}

// raw sends a request and returns the answer as it is.
func (e *engine) raw(method, path, body string) (int, http.Header, string) {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, e.URL+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.token)
	r.Header.Set("Accept-Language", e.speaks)
	response, err := e.client.Do(r)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(response.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(data)
}

// send sends a request and reads the answer.
func (e *engine) send(method, path, body string) (int, *elem) {
	e.t.Helper()
	status, _, text := e.raw(method, path, body)
	if text == "" {
		return status, nil
	}
	answer, err := parseElem(strings.NewReader(text))
	if err != nil {
		e.t.Fatalf("%s %s: %d %q: %v", method, path, status, text, err)
	}
	return status, answer
}

// must sends a request that has to succeed.
func (e *engine) must(method, path, body string) *elem {
	e.t.Helper()
	status, answer := e.send(method, path, body)
	if status >= 300 || answer == nil {
		e.t.Fatalf("%s %s: %d %s", method, path, status, text(answer))
	}
	return answer
}

// refuse sends a request that has to be refused with a status and words.
func (e *engine) refuse(method, path, body string, status int, words string) {
	e.t.Helper()
	got, answer := e.send(method, path, body)
	if detail := answer.str("detail") + answer.str("fault/detail"); got != status || !strings.Contains(detail, words) {
		e.t.Fatalf("%s %s: got %d %s, want %d %q", method, path, got, text(answer), status, words)
	}
}

func text(e *elem) string {
	if e == nil {
		return ""
	}
	return string(e.bytes())
}

// vm makes a VM of the template and waits until it is down. More is put into
// the body.
func (e *engine) vm(name, more string) string {
	e.t.Helper()
	id := e.must("POST", "/vms", vmBody(name, more)).id()
	e.clock.Advance(time.Minute)
	return id
}

func vmBody(name, more string) string {
	return fmt.Sprintf("<vm><name>%s</name><cluster><name>Default</name></cluster><template><name>%s</name></template>%s</vm>", name, templateName, more)
}

func (e *engine) status(id string) string {
	e.t.Helper()
	return e.must("GET", "/vms/"+id, "").str("status")
}

// up starts a VM and waits until it is up.
func (e *engine) up(id string) {
	e.t.Helper()
	e.must("POST", "/vms/"+id+"/start", "<action/>")
	e.clock.Advance(time.Minute)
	e.want(id, vmUp)
}

func (e *engine) want(id, status string) {
	e.t.Helper()
	if got := e.status(id); got != status {
		e.t.Fatalf("the VM is %s, want %s", got, status)
	}
}
