package pvesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

// Info contains the addresses and the credentials of a server.
type Info struct {
	URLs       []string `json:"urls"`
	CABundle   string   `json:"caBundle"`
	Thumbprint string   `json:"thumbprint"`
	Username   string   `json:"username"`
}

// The requests of the control socket.
type (
	stateChange struct {
		On bool `json:"on"`
	}
	timeChange struct {
		Name string        `json:"name,omitempty"`
		Time time.Duration `json:"time"`
	}
	filledChange struct {
		GiB int64 `json:"gib"`
	}
	textChange struct {
		Text string `json:"text"`
	}
	outsideRequest struct {
		Method string         `json:"method"`
		Path   string         `json:"path"`
		Params map[string]any `json:"params,omitempty"`
	}
	diskRequest struct {
		Option  string `json:"option"`
		Storage string `json:"storage"`
		VMID    int    `json:"vmid"`
		GiB     int64  `json:"gib"`
	}
	errorAnswer struct {
		Error string `json:"error"`
	}
)

// startControl starts the listener through which other processes control the
// server.
func (s *Server) startControl() error {
	path := s.opts.ControlSocket
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the directory of the control socket: %w", err)
	}
	// A server that was killed leaves its socket behind.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the old control socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(s.ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listening for control: %w", err)
	}
	s.ctl = &http.Server{Handler: s.controlHandler(), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	s.wg.Go(func() { _ = s.ctl.Serve(listener) })
	return nil
}

func (s *Server) controlHandler() http.Handler {
	mux := http.NewServeMux()
	answer(mux, "GET /info", func(string, struct{}) (Info, error) {
		return Info{URLs: s.URLs, CABundle: s.CABundle, Thumbprint: s.Thumbprint, Username: s.opts.Username}, nil
	})
	answer(mux, "GET /requests", func(string, struct{}) (map[string]int, error) { return s.Requests(), nil })
	answer(mux, "GET /connections", func(string, struct{}) (Connections, error) { return s.Connections(), nil })
	answer(mux, "GET /vms", func(string, struct{}) ([]cluster.VM, error) { return s.Cluster.VMs(), nil })
	answer(mux, "GET /vms/{id}", func(id string, _ struct{}) (cluster.VM, error) { return s.Cluster.FindVM(id) })
	answer(mux, "GET /volumes/{id}", func(id string, _ struct{}) ([]string, error) { return s.Cluster.Volumes(id) })
	answer(mux, "POST /do", func(_ string, r outsideRequest) (any, error) { return s.Do(s.ctx, r.Method, r.Path, r.Params) })
	answer(mux, "POST /vms/{id}/disks", func(id string, d diskRequest) (string, error) {
		return s.Cluster.AddDisk(id, d.Option, d.Storage, d.VMID, d.GiB)
	})
	do(mux, "DELETE /requests", func(string, struct{}) error { s.ResetRequests(); return nil })
	do(mux, "DELETE /faults", func(string, struct{}) error { s.ClearFaults(); return nil })
	do(mux, "POST /faults", func(_ string, f Fault) error { s.Inject(f); return nil })
	do(mux, "DELETE /tickets", func(string, struct{}) error { s.ExpireTickets(); return nil })
	do(mux, "PUT /down", func(_ string, c stateChange) error { s.SetDown(c.On); return nil })
	do(mux, "PUT /hanging", func(_ string, c stateChange) error { s.SetHanging(c.On); return nil })
	do(mux, "PUT /slow", func(_ string, c timeChange) error { s.SetSlow(c.Time); return nil })
	do(mux, "PUT /timings", func(_ string, c timeChange) error { return s.SetTiming(c.Name, c.Time) })
	do(mux, "PUT /nodes/{id}", func(id string, c stateChange) error { return s.SetOnline(id, c.On) })
	do(mux, "PUT /storages/{id}", func(id string, c filledChange) error { return s.Cluster.SetFilled(id, c.GiB) })
	do(mux, "PUT /vms/{id}/lock", func(id string, c textChange) error { return s.Cluster.SetLock(id, c.Text) })
	do(mux, "PUT /vms/{id}/guest", func(id string, g cluster.Guest) error { return s.Cluster.SetGuest(id, g) })
	do(mux, "PUT /vms/{id}/stopped", func(id string, _ struct{}) error { return s.Cluster.GuestStopped(id) })
	do(mux, "PUT /users/{id}/acl", func(id string, entries []access.Entry) error { return s.SetACL(id, entries) })
	do(mux, "PUT /users/{id}/password", func(id string, c textChange) error {
		return s.Cluster.Access(func(a *access.Control) error { return a.SetPassword(id, c.Text) })
	})
	return mux
}

// SetACL replaces the permissions of a user, a token or a group.
func (s *Server) SetACL(subject string, entries []access.Entry) error {
	return s.Cluster.Access(func(a *access.Control) error {
		a.Revoke(subject)
		var errs []error
		for _, entry := range entries {
			entry.Subject = subject
			errs = append(errs, a.Grant(entry))
		}
		return errors.Join(errs...)
	})
}

// do handles a request that is answered with nothing but success.
func do[In any](mux *http.ServeMux, pattern string, f func(string, In) error) {
	answer(mux, pattern, func(id string, in In) (struct{}, error) { return struct{}{}, f(id, in) })
}

// answer handles a request that is answered with JSON.
func answer[In, Out any](mux *http.ServeMux, pattern string, f func(string, In) (Out, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var in In
		err := json.NewDecoder(r.Body).Decode(&in)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		var out any
		if err == nil {
			out, err = f(r.PathValue("id"), in)
		}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			out = errorAnswer{Error: err.Error()}
		}
		_ = json.NewEncoder(w).Encode(out)
	})
}
