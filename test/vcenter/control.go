package vcenter

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
	"reflect"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// Info is how to reach a server.
type Info struct {
	Address    string `json:"address"`
	CABundle   string `json:"caBundle"`
	Thumbprint string `json:"thumbprint"`
	Username   string `json:"username"`
}

// Fault names a fault that is to be injected, in a form that can be sent.
type Fault struct {
	// Method such as CloneVM_Task.
	Method string `json:"method"`
	// Times it is to fail; until faults are cleared, if zero.
	Times int `json:"times,omitempty"`
	// Type is the fault's name in the API, such as NoDiskSpace.
	Type string `json:"type"`
	// Fields of the fault by their names in the API.
	Fields map[string]any `json:"fields,omitempty"`
	// Message is the message of the fault. If not set, the message of vCenter is
	// used.
	Message string `json:"message,omitempty"`
	// Call makes a _Task method itself fail instead of its task.
	Call bool `json:"call,omitempty"`
}

// build makes the fault of the API.
func (f Fault) build() (types.BaseMethodFault, error) {
	kind, ok := types.TypeFunc()(f.Type)
	if !ok {
		return nil, fmt.Errorf("no fault type %q", f.Type)
	}
	fault, ok := reflect.TypeAssert[types.BaseMethodFault](reflect.New(kind))
	if !ok {
		return nil, fmt.Errorf("%s is no fault", f.Type)
	}
	fields, err := json.Marshal(f.Fields)
	if err != nil {
		return nil, fmt.Errorf("reading the fault's fields: %w", err)
	}
	if err := json.Unmarshal(fields, fault); err != nil {
		return nil, fmt.Errorf("reading the fault's fields: %w", err)
	}
	return fault, nil
}

// delayChange and its like are the bodies of control requests.
type (
	delayChange struct {
		Method string `json:"method"`
		Delay  string `json:"delay"`
	}
	stateChange struct {
		On bool `json:"on"`
	}
	infoChange struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	errorAnswer struct {
		Error string `json:"error"`
	}
)

// startControl listens for Control.
func (s *Server) startControl() error {
	if s.opts.ControlSocket == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.opts.ControlSocket), 0o700); err != nil {
		return fmt.Errorf("making the control socket's directory: %w", err)
	}
	// A server that was killed leaves its socket behind.
	if err := os.Remove(s.opts.ControlSocket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the old control socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(s.ctx, "unix", s.opts.ControlSocket)
	if err != nil {
		return fmt.Errorf("listening for control: %w", err)
	}
	s.control = &http.Server{
		Handler:           s.controlHandler(),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	s.wg.Go(func() { _ = s.control.Serve(listener) })
	return nil
}

func (s *Server) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", answer(func(struct{}) (Info, error) {
		return Info{Address: s.Address, CABundle: string(s.CABundle), Thumbprint: s.Thumbprint, Username: s.opts.Username}, nil
	}))
	mux.HandleFunc("GET /requests", answer(func(struct{}) (RequestCounts, error) { return s.counts.all(), nil }))
	mux.HandleFunc("GET /vms", answer(func(struct{}) ([]VM, error) { return s.VMs(), nil }))
	mux.HandleFunc("DELETE /requests", do(func(struct{}) error { s.ResetRequests(); return nil }))
	mux.HandleFunc("DELETE /faults", do(func(struct{}) error { s.ClearFaults(); return nil }))
	mux.HandleFunc("DELETE /sessions", do(func(struct{}) error { s.ExpireSessions(); return nil }))
	mux.HandleFunc("PUT /down", do(func(c stateChange) error { s.SetDown(c.On); return nil }))
	mux.HandleFunc("PUT /hanging", do(func(c stateChange) error { s.SetHanging(c.On); return nil }))
	mux.HandleFunc("POST /faults", do(func(f Fault) error {
		fault, err := f.build()
		if err != nil {
			return err
		}
		if f.Call {
			s.InjectCallFault(f.Method, f.Times, fault, f.Message)
		} else {
			s.InjectFault(f.Method, f.Times, fault, f.Message)
		}
		return nil
	}))
	mux.HandleFunc("PUT /delays", do(func(c delayChange) error {
		delay, err := time.ParseDuration(c.Delay)
		if err == nil {
			s.SetTaskDelay(c.Method, delay)
		}
		return err
	}))
	mux.HandleFunc("PUT /datastores/{name}/full", func(w http.ResponseWriter, r *http.Request) {
		do(func(c stateChange) error { return s.SetDatastoreFull(r.PathValue("name"), c.On) })(w, r)
	})
	mux.HandleFunc("PUT /vms/{id}/addresses", func(w http.ResponseWriter, r *http.Request) {
		do(func(nics []GuestNIC) error { return s.SetGuestAddresses(r.PathValue("id"), nics) })(w, r)
	})
	mux.HandleFunc("PUT /vms/{id}/guestinfo", func(w http.ResponseWriter, r *http.Request) {
		do(func(c infoChange) error { return s.SetGuestInfo(r.PathValue("id"), c.Key, c.Value) })(w, r)
	})
	mux.HandleFunc("PUT /vms/{id}/hostname", func(w http.ResponseWriter, r *http.Request) {
		do(func(c infoChange) error { return s.SetGuestHostName(r.PathValue("id"), c.Value) })(w, r)
	})
	mux.HandleFunc("PUT /vms/{id}/stopped", func(w http.ResponseWriter, r *http.Request) {
		do(func(struct{}) error { return s.GuestStopped(r.PathValue("id")) })(w, r)
	})
	s.steer(mux)
	return mux
}

// do handles a request that is answered with nothing but success.
func do[In any](f func(In) error) http.HandlerFunc {
	return answer(func(in In) (struct{}, error) { return struct{}{}, f(in) })
}

// answer handles a request that is answered with JSON.
func answer[In, Out any](f func(In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		err := json.NewDecoder(r.Body).Decode(&in)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		var out any
		if err == nil {
			out, err = f(in)
		}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			out = errorAnswer{Error: err.Error()}
		}
		_ = json.NewEncoder(w).Encode(out)
	}
}
