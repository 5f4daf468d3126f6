package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// Request is a request of the API.
type Request struct {
	Operation *schema.Operation
	// Params are those of the path, the query and the body.
	Params map[string]any
	// User is a user or a token, or empty.
	User string
	// Node is the node that received the request.
	Node string
	// Upload is the content of an uploaded file.
	Upload []byte
	// Doomed is the text that the task of the request must fail with, if set.
	Doomed string
}

// call is the input of a handler.
type call struct {
	c      *Cluster
	params map[string]any
	user   string
	node   *node
	upload []byte
	doomed string
}

// handler performs an operation with the lock held.
type handler func(q *call) (any, error)

// outside is returned by handlers with work that must not hold the lock.
type outside func(ctx context.Context) (any, error)

// background is returned by handlers that wait some time for a task.
type background struct {
	task *task
	wait time.Duration
	// failed is put in front of the task's error.
	failed string
}

// statusUnreachable is the status for a node that another node cannot reach.
const statusUnreachable = 595

// Do performs a request.
func (c *Cluster) Do(ctx context.Context, r Request) (any, error) {
	result, err := c.perform(ctx, r)
	if err != nil {
		return nil, err
	}
	switch v := result.(type) {
	case outside:
		return v(ctx)
	case background:
		return c.await(ctx, v)
	}
	return result, nil
}

// perform calls the handler, again if it must wait for a file lock.
func (c *Cluster) perform(ctx context.Context, r Request) (any, error) {
	c.mu.Lock()
	timeout := time.NewTimer(c.timings[TimeLock])
	c.mu.Unlock()
	defer timeout.Stop()
	for {
		c.mu.Lock()
		result, err := c.handle(r)
		c.mu.Unlock()
		blocked := &blockedError{}
		if !errors.As(err, &blocked) {
			return result, err
		}
		select {
		case <-blocked.free:
		case <-timeout.C:
			return nil, lockTimeout(blocked.vmid)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.ctx.Done():
			return nil, errStopped
		}
	}
}

// handle checks a request in the order of Proxmox VE and calls its handler.
func (c *Cluster) handle(r Request) (any, error) {
	if err := c.access.Check(r.Operation, r.User, r.Params); err != nil {
		return nil, err
	}
	performs, err := c.performer(r)
	if err != nil {
		return nil, err
	}
	params := maps.Clone(r.Params)
	if err := r.Operation.Check(params); err != nil {
		return nil, err
	}
	h := handlers()[r.Operation.Method+" "+r.Operation.Path]
	if h == nil {
		return nil, &schema.Error{Status: 501, Message: "not simulated"}
	}
	return h(&call{c: c, params: params, user: r.User, node: performs, upload: r.Upload, doomed: r.Doomed})
}

// performer returns the node that performs a request.
func (c *Cluster) performer(r Request) (*node, error) {
	local, err := c.node(r.Node)
	name := schema.Text(r.Params[r.Operation.ProxyTo])
	if err != nil || r.Operation.ProxyTo == "" || name == "localhost" || name == local.Name {
		return local, err
	}
	n, err := c.node(name)
	if err == nil && (!n.online || local.alone || n.alone) {
		err = &schema.Error{Status: statusUnreachable, Message: "No route to host"}
	}
	return n, err
}

// await waits for the end of a task for a while.
func (c *Cluster) await(ctx context.Context, b background) (any, error) {
	timer := time.NewTimer(b.wait)
	defer timer.Stop()
	select {
	case <-b.task.done:
	case <-timer.C:
		return b.task.upid, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, errStopped
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.task.exit != "OK" {
		return nil, schema.Failed("%s%s", b.failed, b.task.exit)
	}
	return nil, nil //nolint:nilnil // null is the result
}

// seconds is the time that a number of seconds of a parameter takes.
func (c *Cluster) seconds(n int) time.Duration { return time.Duration(n) * c.timings[TimeSecond] }

func (q *call) has(name string) bool { return q.params[name] != nil }

// text returns a parameter as text.
func (q *call) text(name string) string {
	if q.params[name] == nil {
		return ""
	}
	return schema.Text(q.params[name])
}

// on returns whether a boolean parameter is set.
func (q *call) on(name string) bool { return q.text(name) == "1" }

// number returns a parameter as a number, or the fallback.
func (q *call) number(name string, fallback int) int {
	n, err := strconv.Atoi(q.text(name))
	if err != nil {
		return fallback
	}
	return n
}

// require returns an error unless the user has the privileges on a path.
func (q *call) require(path string, privileges ...string) error {
	return q.c.access.Require(q.user, path, privileges...)
}

// onVM returns an error unless the user has the privileges on a VM, or on the
// pool that it is created in.
func (q *call) onVM(vmid int, pool string, privileges ...string) error {
	if pool != "" && q.c.access.Has(q.user, "/pool/"+pool, privileges...) {
		return nil
	}
	return q.require("/vms/"+strconv.Itoa(vmid), privileges...)
}

// rootOnly returns an error for parameters that only root may use.
func (q *call) rootOnly(names ...string) error {
	for _, name := range names {
		if q.has(name) && q.text(name) != "0" && q.user != "root@pam" {
			return schema.InvalidParameter(name, "Only root may use this option.")
		}
	}
	return nil
}

// bit is a boolean in a response.
func bit(on bool) json.Number {
	if on {
		return "1"
	}
	return "0"
}

// joinPath joins the parts of a path.
func joinPath(parts ...string) string { return strings.Join(parts, "/") }
