package vcenter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Control steers a server in another process by its control socket.
type Control struct {
	client *http.Client
}

// NewControl returns a Control for the server that listens on socket. It does
// not connect yet.
func NewControl(socket string) *Control {
	dialer := &net.Dialer{}
	return &Control{client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true, // or a test ends with its connections open
	}}}
}

// Info contains the address and the credentials of the server.
func (c *Control) Info(ctx context.Context) (info Info, err error) {
	err = c.call(ctx, http.MethodGet, "/info", nil, &info)
	return info, err
}

// Requests are the calls since the start or the last reset.
func (c *Control) Requests(ctx context.Context) (counts RequestCounts, err error) {
	err = c.call(ctx, http.MethodGet, "/requests", nil, &counts)
	return counts, err
}

// ResetRequests resets the counters of requests.
func (c *Control) ResetRequests(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/requests", nil, nil)
}

// VMs lists the VMs and templates.
func (c *Control) VMs(ctx context.Context) (vms []VM, err error) {
	err = c.call(ctx, http.MethodGet, "/vms", nil, &vms)
	return vms, err
}

// InjectFault makes calls or tasks fail.
func (c *Control) InjectFault(ctx context.Context, fault Fault) error {
	return c.call(ctx, http.MethodPost, "/faults", fault, nil)
}

// ClearFaults forgets all injected faults.
func (c *Control) ClearFaults(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/faults", nil, nil)
}

// ExpireSessions ends all sessions.
func (c *Control) ExpireSessions(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/sessions", nil, nil)
}

// SetDown cuts all connections and resets new ones, or ends that.
func (c *Control) SetDown(ctx context.Context, down bool) error {
	return c.call(ctx, http.MethodPut, "/down", stateChange{On: down}, nil)
}

// SetHanging leaves all requests without an answer, or ends that.
func (c *Control) SetHanging(ctx context.Context, hanging bool) error {
	return c.call(ctx, http.MethodPut, "/hanging", stateChange{On: hanging}, nil)
}

// SetTaskDelay sets the duration of the tasks of a method.
func (c *Control) SetTaskDelay(ctx context.Context, method string, delay time.Duration) error {
	return c.call(ctx, http.MethodPut, "/delays", delayChange{Method: method, Delay: delay.String()}, nil)
}

// SetDatastoreFull takes all free space of a datastore away, or gives it back.
func (c *Control) SetDatastoreFull(ctx context.Context, name string, full bool) error {
	return c.call(ctx, http.MethodPut, "/datastores/"+url.PathEscape(name)+"/full", stateChange{On: full}, nil)
}

// SetGuestAddresses reports the addresses of a running guest.
func (c *Control) SetGuestAddresses(ctx context.Context, id string, nics []GuestNIC) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/addresses", nics, nil)
}

// SetGuestHostName reports a running guest's own name.
func (c *Control) SetGuestHostName(ctx context.Context, id, name string) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/hostname", infoChange{Value: name}, nil)
}

// SetGuestInfo stores data of a guest.
func (c *Control) SetGuestInfo(ctx context.Context, id, key, value string) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/guestinfo", infoChange{Key: key, Value: value}, nil)
}

// GuestStopped reports that a guest powered itself off or died.
func (c *Control) GuestStopped(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/stopped", nil, nil)
}

func (c *Control) call(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return fmt.Errorf("encoding a control request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://vcenter"+path, &body)
	if err != nil {
		return fmt.Errorf("making a control request: %w", err)
	}
	res, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("asking the vCenter's control: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		var refusal errorAnswer
		if err := json.NewDecoder(res.Body).Decode(&refusal); err != nil || refusal.Error == "" {
			return fmt.Errorf("vCenter's control answered %s", res.Status)
		}
		return errors.New(refusal.Error)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return fmt.Errorf("decoding a control answer: %w", err)
	}
	return nil
}
