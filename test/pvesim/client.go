package pvesim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

// Control controls a server in another process by its control socket.
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

// Info contains the addresses and the user of the server.
func (c *Control) Info(ctx context.Context) (info Info, err error) {
	err = c.call(ctx, http.MethodGet, "/info", nil, &info)
	return info, err
}

// Requests are the requests since the start or the last reset, by method and
// path with names for IDs, such as "GET /nodes/{node}/status".
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

// VMs lists the VMs and templates, without the contents of their drives.
func (c *Control) VMs(ctx context.Context) (vms []cluster.VM, err error) {
	err = c.call(ctx, http.MethodGet, "/vms", nil, &vms)
	return vms, err
}

// FindVM finds a VM by its VMID or name.
func (c *Control) FindVM(ctx context.Context, name string) (vm cluster.VM, err error) {
	err = c.call(ctx, http.MethodGet, "/vms/"+url.PathEscape(name), nil, &vm)
	return vm, err
}

// Volumes lists the IDs of the volumes of a storage.
func (c *Control) Volumes(ctx context.Context, storage string) (ids []string, err error) {
	err = c.call(ctx, http.MethodGet, "/volumes/"+url.PathEscape(storage), nil, &ids)
	return ids, err
}

// AddDisk creates a disk and attaches it to a VM, as a storage driver or a person
// does. It returns the ID of the volume.
func (c *Control) AddDisk(ctx context.Context, vm, option, storage string, vmid int, gib int64) (id string, err error) {
	request := diskRequest{Option: option, Storage: storage, VMID: vmid, GiB: gib}
	err = c.call(ctx, http.MethodPost, "/vms/"+url.PathEscape(vm)+"/disks", request, &id)
	return id, err
}

// Do performs a request of root, without the client under test.
func (c *Control) Do(ctx context.Context, method, path string, params map[string]any) (result any, err error) {
	err = c.call(ctx, http.MethodPost, "/do", outsideRequest{Method: method, Path: path, Params: params}, &result)
	return result, err
}

// Task performs a request of root that starts a task, and waits for its end.
func (c *Control) Task(ctx context.Context, method, path string, params map[string]any) error {
	result, err := c.Do(ctx, method, path, params)
	if err != nil {
		return err
	}
	upid, _ := result.(string)
	parts := strings.Split(upid, ":")
	if len(parts) < 2 {
		return fmt.Errorf("%s %s: %v is no task", method, path, result)
	}
	ticker := time.NewTicker(taskInterval)
	defer ticker.Stop()
	for {
		result, err := c.Do(ctx, http.MethodGet, "/nodes/"+parts[1]+"/tasks/"+upid+"/status", nil)
		status, _ := result.(map[string]any)
		switch {
		case err != nil:
			return err
		case status["exitstatus"] == "OK":
			return nil
		case status["status"] == "stopped":
			return fmt.Errorf("%s %s: %v", method, path, status["exitstatus"])
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// taskInterval is the interval at which Task reads the status of a task.
const taskInterval = 20 * time.Millisecond

// On returns the path of a VM below /api2/json.
func (c *Control) On(ctx context.Context, name string) (string, error) {
	vm, err := c.FindVM(ctx, name)
	return "/nodes/" + vm.Node + "/qemu/" + strconv.Itoa(vm.VMID), err
}

// InjectFault makes requests fail.
func (c *Control) InjectFault(ctx context.Context, fault Fault) error {
	return c.call(ctx, http.MethodPost, "/faults", fault, nil)
}

// ClearFaults removes all injected faults.
func (c *Control) ClearFaults(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/faults", nil, nil)
}

// ExpireTickets makes all tickets invalid.
func (c *Control) ExpireTickets(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/tickets", nil, nil)
}

// SetDown stops the API of all nodes, or starts it.
func (c *Control) SetDown(ctx context.Context, down bool) error {
	return c.call(ctx, http.MethodPut, "/down", stateChange{On: down}, nil)
}

// SetHanging delays all responses, or ends the delay.
func (c *Control) SetHanging(ctx context.Context, hanging bool) error {
	return c.call(ctx, http.MethodPut, "/hanging", stateChange{On: hanging}, nil)
}

// SetSlow delays every response.
func (c *Control) SetSlow(ctx context.Context, d time.Duration) error {
	return c.call(ctx, http.MethodPut, "/slow", timeChange{Time: d}, nil)
}

// SetTiming sets a duration, by a name of DefaultTimings.
func (c *Control) SetTiming(ctx context.Context, name string, d time.Duration) error {
	return c.call(ctx, http.MethodPut, "/timings", timeChange{Name: name, Time: d}, nil)
}

// SetOnline changes whether a node is online.
func (c *Control) SetOnline(ctx context.Context, node string, online bool) error {
	return c.call(ctx, http.MethodPut, "/nodes/"+url.PathEscape(node), stateChange{On: online}, nil)
}

// SetFilled sets the space that others occupy in a storage, in GiB.
func (c *Control) SetFilled(ctx context.Context, storage string, gib int64) error {
	return c.call(ctx, http.MethodPut, "/storages/"+url.PathEscape(storage), filledChange{GiB: gib}, nil)
}

// SetLock sets the lock of a VM, or removes it.
func (c *Control) SetLock(ctx context.Context, vm, lock string) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(vm)+"/lock", textChange{Text: lock}, nil)
}

// SetGuest reports the state of a running VM's guest agent.
func (c *Control) SetGuest(ctx context.Context, vm string, guest cluster.Guest) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(vm)+"/guest", guest, nil)
}

// GuestStopped reports that a guest shut itself down.
func (c *Control) GuestStopped(ctx context.Context, vm string) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(vm)+"/stopped", nil, nil)
}

// SetACL replaces the permissions of a user, a token or a group.
func (c *Control) SetACL(ctx context.Context, subject string, entries ...access.Entry) error {
	return c.call(ctx, http.MethodPut, "/users/"+url.PathEscape(subject)+"/acl", append([]access.Entry{}, entries...), nil)
}

// SetPassword changes a user's password. Tickets stay valid.
func (c *Control) SetPassword(ctx context.Context, user, password string) error {
	return c.call(ctx, http.MethodPut, "/users/"+url.PathEscape(user)+"/password", textChange{Text: password}, nil)
}

func (c *Control) call(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return fmt.Errorf("encoding a control request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://pvesim"+path, &body)
	if err != nil {
		return fmt.Errorf("making a control request: %w", err)
	}
	res, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("sending a control request: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		var refusal errorAnswer
		if err := json.NewDecoder(res.Body).Decode(&refusal); err != nil || refusal.Error == "" {
			return fmt.Errorf("the control socket answered %s", res.Status)
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
