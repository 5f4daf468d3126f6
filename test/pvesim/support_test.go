package pvesim

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// client is a client of a node.
type client struct {
	t      *testing.T
	server *Server
	http   *http.Client
	// token is the value of the header Authorization.
	token string
	// node is the index of the node that receives the requests.
	node int
}

// response is a response of the API.
type response struct {
	Status  int
	Reason  string
	Data    any
	Message string
	Errors  map[string]string
}

// quick are timings for tests.
func quick() map[string]time.Duration {
	timings := DefaultTimings()
	for name := range timings {
		timings[name] = 2 * time.Millisecond
	}
	timings["lock"] = 2 * time.Second
	timings["second"] = 20 * time.Millisecond
	timings["status"] = 20 * time.Millisecond
	timings[TimeTicket] = time.Hour
	return timings
}

// start starts a server and returns a client with the token of a user who has all
// privileges.
func start(t *testing.T, opts Options) *client {
	t.Helper()
	if opts.Timings == nil {
		opts.Timings = quick()
	}
	server, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(server.CABundle))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, server: server, http: &http.Client{Transport: transport, Timeout: 20 * time.Second}, token: "PVEAPIToken=" + DefaultToken + "=" + DefaultTokenSecret}
}

// as returns a client with another token.
func (c *client) as(token string) *client {
	other := *c
	other.token = token
	return &other
}

// at returns a client of another node.
func (c *client) at(node int) *client {
	other := *c
	other.node = node
	return &other
}

// do sends a request. Parameters are written as name=value.
func (c *client) do(method, path string, params ...string) response {
	c.t.Helper()
	res, err := c.send(method, path, params...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res
}

func (c *client) send(method, path string, params ...string) (response, error) {
	form := url.Values{}
	for _, param := range params {
		name, value, _ := strings.Cut(param, "=")
		form.Add(name, value)
	}
	target, body := c.server.URLs[c.node]+apiPath+path, ""
	if method == http.MethodPost || method == http.MethodPut {
		body = form.Encode()
	} else if len(form) > 0 {
		target += "?" + form.Encode()
	}
	return c.raw(method, target, "application/x-www-form-urlencoded", strings.NewReader(body))
}

func (c *client) raw(method, target, kind string, body io.Reader) (response, error) {
	req, err := http.NewRequestWithContext(c.t.Context(), method, target, body)
	if err != nil {
		return response{}, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if c.token != "" {
		req.Header.Set("Authorization", c.token)
	}
	return c.roundTrip(req)
}

// checked checks the data of a response with the schema.
func (c *client) checked(req *http.Request, body []byte) error {
	o, _ := schema.Find(req.Method, strings.TrimPrefix(req.URL.Path, apiPath))
	var content struct{ Data any }
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&content); err != nil || o == nil {
		return err
	}
	return o.CheckResult(content.Data)
}

func (c *client) roundTrip(req *http.Request) (response, error) {
	answer, err := c.http.Do(req)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return response{}, err
	}
	_, reason, _ := strings.Cut(answer.Status, " ")
	res := response{Status: answer.StatusCode, Reason: reason}
	if len(data) > 0 {
		var content struct {
			Data    any
			Message string
			Errors  map[string]string
		}
		if err := json.Unmarshal(data, &content); err != nil {
			return res, fmt.Errorf("the body is no JSON: %q", data)
		}
		res.Data, res.Message, res.Errors = content.Data, content.Message, content.Errors
		if res.Status == http.StatusOK {
			if err := c.checked(req, data); err != nil {
				c.t.Error(err)
			}
		}
	}
	return res, nil
}

// ok sends a request that must succeed and returns the data.
func (c *client) ok(method, path string, params ...string) any {
	c.t.Helper()
	res := c.do(method, path, params...)
	if res.Status != http.StatusOK {
		c.t.Fatalf("%s %s: got %+v", method, path, res)
	}
	return res.Data
}

// refused sends a request that must be rejected with a status and a text, which
// may also be in the errors by parameter.
func (c *client) refused(status int, text, method, path string, params ...string) {
	c.t.Helper()
	res := c.do(method, path, params...)
	lines := []string{res.Reason, res.Message}
	for name, problem := range res.Errors {
		lines = append(lines, name+": "+problem)
	}
	all := strings.Join(lines, "\n")
	if res.Status != status || !strings.Contains(all, text) {
		c.t.Errorf("%s %s: got %d %q, want %d %q", method, path, res.Status, all, status, text)
	}
}

// upid starts a task.
func (c *client) upid(method, path string, params ...string) string {
	c.t.Helper()
	upid, ok := c.ok(method, path, params...).(string)
	if !ok || !strings.HasPrefix(upid, "UPID:") {
		c.t.Fatalf("%s %s: %q is no UPID", method, path, upid)
	}
	return upid
}

// wait waits for the end of a task and returns its exit status.
func (c *client) wait(upid string) string {
	c.t.Helper()
	node := strings.Split(upid, ":")[1]
	exit := ""
	c.eventually("task "+upid+" ends", func() bool {
		status, _ := c.ok(http.MethodGet, "/nodes/"+node+"/tasks/"+upid+"/status").(map[string]any)
		exit, _ = status["exitstatus"].(string)
		return status["status"] == "stopped"
	})
	return exit
}

// eventually waits until a condition is true.
func (c *client) eventually(text string, f func() bool) {
	c.t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	for !f() {
		select {
		case <-ticker.C:
		case <-timeout.C:
			c.t.Fatalf("timeout: %s", text)
		}
	}
}

// task starts a task that must succeed.
func (c *client) task(method, path string, params ...string) {
	c.t.Helper()
	if exit := c.wait(c.upid(method, path, params...)); exit != "OK" {
		c.t.Fatalf("%s %s: the task ended with %q", method, path, exit)
	}
}

// fails starts a task that must fail with a text.
func (c *client) fails(text, method, path string, params ...string) {
	c.t.Helper()
	if exit := c.wait(c.upid(method, path, params...)); !strings.Contains(exit, text) {
		c.t.Errorf("%s %s: the task ended with %q, want %q", method, path, exit, text)
	}
}

// config returns the configuration of a VM.
func (c *client) config(node string, vmid int) map[string]any {
	c.t.Helper()
	config, _ := c.ok(http.MethodGet, fmt.Sprintf("/nodes/%s/qemu/%d/config", node, vmid)).(map[string]any)
	return config
}

// form returns the body of an upload with the usual library.
func form(t *testing.T, fields [][2]string, file string, data []byte) (string, *bytes.Buffer) {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, field := range fields {
		if err := w.WriteField(field[0], field[1]); err != nil {
			t.Fatal(err)
		}
	}
	part, err := w.CreateFormFile("filename", file)
	if err == nil {
		_, err = part.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), &body
}

// upload uploads a file.
func (c *client) upload(path string, fields [][2]string, file string, data []byte) response {
	c.t.Helper()
	kind, body := form(c.t, fields, file, data)
	res, err := c.raw(http.MethodPost, c.server.URLs[c.node]+apiPath+path, kind, body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res
}
