package ovirtsim

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

// Requests are the requests since the start or the last reset, by method and
// path with {} for IDs, such as "GET /vms/{}".
func (c *Control) Requests(ctx context.Context) (counts map[string]int, err error) {
	err = c.call(ctx, http.MethodGet, "/requests", nil, &counts)
	return counts, err
}

// ResetRequests resets the counters of requests and connections.
func (c *Control) ResetRequests(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/requests", nil, nil)
}

// Connections counts the connections of clients.
func (c *Control) Connections(ctx context.Context) (counts Connections, err error) {
	err = c.call(ctx, http.MethodGet, "/connections", nil, &counts)
	return counts, err
}

// VMs lists the VMs, without drives and payloads.
func (c *Control) VMs(ctx context.Context) (vms []VM, err error) {
	err = c.call(ctx, http.MethodGet, "/vms", nil, &vms)
	return vms, err
}

// FindVM finds the VM of that name or ID. There has to be one only.
func (c *Control) FindVM(ctx context.Context, name string) (vm VM, err error) {
	err = c.call(ctx, http.MethodGet, "/vms/"+url.PathEscape(name), nil, &vm)
	return vm, err
}

// Do performs a request as another user, without the client under test: see
// Server.Do. An error response is returned as an error.
func (c *Control) Do(ctx context.Context, method, path, body string) (string, error) {
	var answer outsideAnswer
	if err := c.call(ctx, http.MethodPost, "/do", outsideRequest{Method: method, Path: path, Body: body}, &answer); err != nil {
		return "", err
	}
	if answer.Status >= http.StatusMultipleChoices {
		return answer.Body, fmt.Errorf("%s %s: the engine answered %d: %s", method, path, answer.Status, answer.Body)
	}
	return answer.Body, nil
}

// PowerOn starts a VM from outside. It is named by name or ID, as all are.
func (c *Control) PowerOn(ctx context.Context, name string) error { return c.act(ctx, name, "start") }

// PowerOff stops a VM from outside.
func (c *Control) PowerOff(ctx context.Context, name string) error { return c.act(ctx, name, "stop") }

// Shutdown shuts a VM down from outside.
func (c *Control) Shutdown(ctx context.Context, name string) error {
	return c.act(ctx, name, "shutdown")
}

func (c *Control) act(ctx context.Context, name, action string) error {
	vm, err := c.FindVM(ctx, name)
	if err != nil {
		return err
	}
	_, err = c.Do(ctx, http.MethodPost, "/vms/"+vm.ID+"/"+action, "<action/>")
	return err
}

// Delete removes a VM that is down from outside, disks and all.
func (c *Control) Delete(ctx context.Context, name string) error {
	vm, err := c.FindVM(ctx, name)
	if err != nil {
		return err
	}
	_, err = c.Do(ctx, http.MethodDelete, "/vms/"+vm.ID, "")
	return err
}

// Rename renames a VM from outside.
func (c *Control) Rename(ctx context.Context, name, to string) error {
	vm, err := c.FindVM(ctx, name)
	if err != nil {
		return err
	}
	_, err = c.Do(ctx, http.MethodPut, "/vms/"+vm.ID, string(el("vm", leaf("name", to)).bytes()))
	return err
}

// InjectFault makes requests fail.
func (c *Control) InjectFault(ctx context.Context, fault Fault) error {
	return c.call(ctx, http.MethodPost, "/faults", fault, nil)
}

// ClearFaults forgets all injected faults.
func (c *Control) ClearFaults(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/faults", nil, nil)
}

// ExpireSessions ends all sessions.
func (c *Control) ExpireSessions(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/tokens", nil, nil)
}

// SetDown stops the engine, but not the web server in front of it, or ends
// that.
func (c *Control) SetDown(ctx context.Context, down bool) error {
	return c.call(ctx, http.MethodPut, "/down", stateChange{On: down}, nil)
}

// Restart takes the engine down for a while.
func (c *Control) Restart(ctx context.Context, d time.Duration) error {
	return c.call(ctx, http.MethodPost, "/restart", timeChange{Time: d.String()}, nil)
}

// SetUnreachable cuts all connections and resets new ones, or ends that.
func (c *Control) SetUnreachable(ctx context.Context, unreachable bool) error {
	return c.call(ctx, http.MethodPut, "/unreachable", stateChange{On: unreachable}, nil)
}

// SetHanging leaves all requests without an answer, or ends that.
func (c *Control) SetHanging(ctx context.Context, hanging bool) error {
	return c.call(ctx, http.MethodPut, "/hanging", stateChange{On: hanging}, nil)
}

// SetSlow makes every answer take a while.
func (c *Control) SetSlow(ctx context.Context, d time.Duration) error {
	return c.call(ctx, http.MethodPut, "/slow", timeChange{Time: d.String()}, nil)
}

// SetTiming sets a duration, by a name of DefaultTimings.
func (c *Control) SetTiming(ctx context.Context, name string, d time.Duration) error {
	return c.call(ctx, http.MethodPut, "/timings", timingChange{Name: name, Time: d.String()}, nil)
}

// SetHostStatus changes a hypervisor's host as a failure or a repair would.
func (c *Control) SetHostStatus(ctx context.Context, name string, status HostStatus) error {
	return c.call(ctx, http.MethodPut, "/hosts/"+url.PathEscape(name), hostChange{Status: status}, nil)
}

// SetDomain sets a storage domain's status, unless it is empty, and the space
// that other users occupy, in GiB.
func (c *Control) SetDomain(ctx context.Context, name, status string, filledGiB int64) error {
	return c.call(ctx, http.MethodPut, "/domains/"+url.PathEscape(name), domainChange{Status: status, FilledGiB: filledGiB}, nil)
}

// SetVMStatus puts a VM into a state, whatever led there.
func (c *Control) SetVMStatus(ctx context.Context, name, status string) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(name)+"/status", statusChange{Status: status}, nil)
}

// SetPermits sets the permissions of a user other than the administrator.
func (c *Control) SetPermits(ctx context.Context, user string, permits ...string) error {
	return c.call(ctx, http.MethodPut, "/users/"+url.PathEscape(user)+"/permits", append([]string{}, permits...), nil)
}

// SetPassword changes a user's password. Sessions go on.
func (c *Control) SetPassword(ctx context.Context, user, password string) error {
	return c.call(ctx, http.MethodPut, "/users/"+url.PathEscape(user)+"/password", passwordChange{Password: password}, nil)
}

// SetGuestAddresses reports the addresses of a running guest.
func (c *Control) SetGuestAddresses(ctx context.Context, id string, nics []GuestNIC) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/addresses", nics, nil)
}

// SetGuestSystem reports a running guest's operating system.
func (c *Control) SetGuestSystem(ctx context.Context, id string, system GuestSystem) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/system", system, nil)
}

// SetGuestHostName reports a running guest's own name.
func (c *Control) SetGuestHostName(ctx context.Context, id, name string) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/hostname", nameChange{Name: name}, nil)
}

// GuestStopped reports that a guest powered itself off.
func (c *Control) GuestStopped(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/stopped", nil, nil)
}

// GuestDied reports that the process of a guest has ended.
func (c *Control) GuestDied(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/died", nil, nil)
}

func (c *Control) call(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return fmt.Errorf("encoding a control request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, &body)
	if err != nil {
		return fmt.Errorf("making a control request: %w", err)
	}
	res, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("asking the engine's control: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		var refusal errorAnswer
		if err := json.NewDecoder(res.Body).Decode(&refusal); err != nil || refusal.Error == "" {
			return fmt.Errorf("the engine's control answered %s", res.Status)
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
