package ovirtsim

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
)

// Info is how to reach a server.
type Info struct {
	URL      string `json:"url"`
	CABundle string `json:"caBundle"`
	Username string `json:"username"`
}

// The bodies of control requests.
type (
	timingChange struct {
		Name string `json:"name"`
		Time string `json:"time"`
	}
	stateChange struct {
		On bool `json:"on"`
	}
	timeChange struct {
		Time string `json:"time"`
	}
	hostChange struct {
		Status HostStatus `json:"status"`
	}
	domainChange struct {
		Status    string `json:"status"`
		FilledGiB int64  `json:"filledGiB"`
	}
	statusChange struct {
		Status string `json:"status"`
	}
	passwordChange struct {
		Password string `json:"password"`
	}
	nameChange struct {
		Name string `json:"name"`
	}
	outsideRequest struct {
		Method string `json:"method"`
		Path   string `json:"path"`
		Body   string `json:"body,omitempty"`
	}
	outsideAnswer struct {
		Status int    `json:"status"`
		Body   string `json:"body,omitempty"`
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
		return fmt.Errorf("making the control socket's directory: %w", err)
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
		return Info{URL: s.URL, CABundle: s.CABundle, Username: s.opts.Username}, nil
	})
	answer(mux, "GET /requests", func(string, struct{}) (map[string]int, error) { return s.Requests(), nil })
	answer(mux, "GET /connections", func(string, struct{}) (Connections, error) { return s.Connections(), nil })
	answer(mux, "GET /vms", func(string, struct{}) ([]VM, error) {
		vms := s.VMs()
		for i := range vms {
			// A thousand user data are a lot.
			vms[i].Drive, vms[i].Payload = nil, nil
		}
		return vms, nil
	})
	answer(mux, "GET /vms/{id}", func(id string, _ struct{}) (VM, error) { return s.FindVM(id) })
	do(mux, "DELETE /requests", func(string, struct{}) error { s.ResetRequests(); return nil })
	do(mux, "DELETE /faults", func(string, struct{}) error { s.ClearFaults(); return nil })
	do(mux, "DELETE /tokens", func(string, struct{}) error { s.ExpireTokens(); return nil })
	do(mux, "POST /faults", func(_ string, f Fault) error { s.Inject(f); return nil })
	do(mux, "PUT /down", func(_ string, c stateChange) error { s.SetDown(c.On); return nil })
	do(mux, "PUT /hanging", func(_ string, c stateChange) error { s.SetHanging(c.On); return nil })
	do(mux, "PUT /unreachable", func(_ string, c stateChange) error { s.SetUnreachable(c.On); return nil })
	answer(mux, "POST /do", func(_ string, c outsideRequest) (outsideAnswer, error) {
		status, body := s.Do(c.Method, c.Path, c.Body)
		return outsideAnswer{Status: status, Body: body}, nil
	})
	do(mux, "POST /restart", func(_ string, c timeChange) error { return parsed(c.Time, s.Restart) })
	do(mux, "PUT /slow", func(_ string, c timeChange) error { return parsed(c.Time, s.SetSlow) })
	do(mux, "PUT /timings", func(_ string, c timingChange) error {
		d, err := time.ParseDuration(c.Time)
		if err != nil {
			return err
		}
		return s.SetTiming(c.Name, d)
	})
	do(mux, "PUT /hosts/{id}", func(id string, c hostChange) error { return s.SetHostStatus(id, c.Status) })
	do(mux, "PUT /domains/{id}", func(id string, c domainChange) error { return s.SetDomain(id, c.Status, c.FilledGiB) })
	do(mux, "PUT /vms/{id}/status", func(id string, c statusChange) error { return s.SetVMStatus(id, c.Status) })
	do(mux, "PUT /users/{id}/permits", func(id string, permits []string) error { return s.SetPermits(id, permits) })
	do(mux, "PUT /users/{id}/password", func(id string, c passwordChange) error { return s.SetPassword(id, c.Password) })
	do(mux, "PUT /vms/{id}/addresses", s.SetGuestAddresses)
	do(mux, "PUT /vms/{id}/system", s.SetGuestSystem)
	do(mux, "PUT /vms/{id}/hostname", func(id string, c nameChange) error { return s.SetGuestHostName(id, c.Name) })
	do(mux, "PUT /vms/{id}/stopped", func(id string, _ struct{}) error { return s.GuestStopped(id) })
	do(mux, "PUT /vms/{id}/died", func(id string, _ struct{}) error { return s.GuestDied(id) })
	return mux
}

func parsed(text string, f func(time.Duration)) error {
	d, err := time.ParseDuration(text)
	if err == nil {
		f(d)
	}
	return err
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
