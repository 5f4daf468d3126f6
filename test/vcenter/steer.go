package vcenter

import (
	"context"
	"net/http"
	"net/url"
)

// Bodies of the control requests that change VMs from outside.
type (
	migration struct {
		Host string `json:"host"`
	}
	connection struct {
		State string `json:"state"`
	}
	answerText struct {
		Value string `json:"value"`
	}
	answerFound struct {
		Found bool `json:"found"`
	}
)

// steer serves the requests that change VMs without the client under test.
func (s *Server) steer(mux *http.ServeMux) {
	byVM := func(pattern string, handler func(id string) http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { handler(r.PathValue("id"))(w, r) })
	}
	mux.HandleFunc("GET /rules", answer(func(struct{}) ([]Rule, error) { return s.Rules(), nil }))
	mux.HandleFunc("GET /files", func(w http.ResponseWriter, r *http.Request) {
		answer(func(struct{}) (answerFound, error) {
			found, err := s.HasFile(r.URL.Query().Get("path"))
			return answerFound{Found: found}, err
		})(w, r)
	})
	byVM("PUT /vms/{id}/host", func(id string) http.HandlerFunc {
		return do(func(m migration) error { return s.MigrateVM(id, m.Host) })
	})
	byVM("PUT /vms/{id}/connection", func(id string) http.HandlerFunc {
		return do(func(c connection) error { return s.SetConnectionState(id, c.State) })
	})
	byVM("PUT /vms/{id}/tools", func(id string) http.HandlerFunc {
		return do(func(c stateChange) error { return s.SetToolsRunning(id, c.On) })
	})
	byVM("POST /vms/{id}/disks", func(id string) http.HandlerFunc {
		return do(func(d Disk) error { return s.AttachDisk(id, d) })
	})
	byVM("PUT /vms/{id}/registration", func(id string) http.HandlerFunc {
		return answer(func(struct{}) (answerText, error) {
			ref, err := s.ReregisterVM(id)
			return answerText{Value: ref}, err
		})
	})
	byVM("PUT /hidden/{id}", func(id string) http.HandlerFunc {
		return do(func(c stateChange) error { return s.SetHidden(id, c.On) })
	})
	byVM("PUT /hosts/{id}/connected", func(id string) http.HandlerFunc {
		return do(func(c stateChange) error { return s.SetHostConnected(id, c.On) })
	})
}

// Rules lists the anti-affinity rules of all clusters.
func (c *Control) Rules(ctx context.Context) (rules []Rule, err error) {
	err = c.call(ctx, http.MethodGet, "/rules", nil, &rules)
	return rules, err
}

// HasFile reports whether a datastore has a file, "[LocalDS_0] dir/file.vmdk".
func (c *Control) HasFile(ctx context.Context, file string) (bool, error) {
	var out answerFound
	err := c.call(ctx, http.MethodGet, "/files?path="+url.QueryEscape(file), nil, &out)
	return out.Found, err
}

// MigrateVM moves a VM to another host.
func (c *Control) MigrateVM(ctx context.Context, id, host string) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/host", migration{Host: host}, nil)
}

// SetConnectionState sets the connection state of a VM.
func (c *Control) SetConnectionState(ctx context.Context, id, state string) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/connection", connection{State: state}, nil)
}

// SetHostConnected connects vCenter to a host, or cuts it off.
func (c *Control) SetHostConnected(ctx context.Context, host string, connected bool) error {
	return c.call(ctx, http.MethodPut, "/hosts/"+url.PathEscape(host)+"/connected", stateChange{On: connected}, nil)
}

// SetToolsRunning sets whether VMware Tools run in a VM's guest.
func (c *Control) SetToolsRunning(ctx context.Context, id string, running bool) error {
	return c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/tools", stateChange{On: running}, nil)
}

// AttachDisk attaches a disk to a VM, as storage drivers do.
func (c *Control) AttachDisk(ctx context.Context, id string, disk Disk) error {
	return c.call(ctx, http.MethodPost, "/vms/"+url.PathEscape(id)+"/disks", disk, nil)
}

// ReregisterVM registers a VM again and returns its new reference.
func (c *Control) ReregisterVM(ctx context.Context, id string) (string, error) {
	var out answerText
	err := c.call(ctx, http.MethodPut, "/vms/"+url.PathEscape(id)+"/registration", nil, &out)
	return out.Value, err
}

// SetHidden takes the account's sight of a VM or a folder, or gives it back.
func (c *Control) SetHidden(ctx context.Context, id string, hidden bool) error {
	return c.call(ctx, http.MethodPut, "/hidden/"+url.PathEscape(id), stateChange{On: hidden}, nil)
}
