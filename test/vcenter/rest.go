package vcenter

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi"
	"github.com/vmware/govmomi/vapi/rest"
	vapisimulator "github.com/vmware/govmomi/vapi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
)

// restSession is the header that names the session of a REST call.
const restSession = "Vmware-Api-Session-Id"

// registerREST serves the REST API: sessions, tags, content libraries.
func (s *Server) registerREST(registry *simulator.Registry) {
	// Some of its calls are SOAP calls to this server.
	at := *s.svc.Listen
	at.Path = vim25.Path
	patterns, handler := vapisimulator.New(&at, registry)
	// A deployment gets the address to which it uploads its disks.
	options := registry.OptionManager()
	options.Setting = append(options.Setting, &types.OptionValue{Key: "vcsim.server.url", Value: s.svc.Listen.String()})
	for _, pattern := range patterns {
		s.svc.Handle(pattern, handler)
	}
	// Otherwise it would accept the user with which it was created, regardless of
	// SetPassword.
	registry.SessionManager().ValidLogin = s.isAccount
}

func isREST(path string) bool {
	for _, prefix := range []string{rest.Path, vapi.Path} {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}

// serveREST answers one REST call. The API has a lock of its own, and some of
// its calls make SOAP calls to this server, so the inventory stays free.
func (s *Server) serveREST(w http.ResponseWriter, r *http.Request) {
	s.counts.add(restMethod(r), r.Header.Get(restSession))
	if s.refuseREST(w, restMethod(r)) || s.serveLibrary(w, r) {
		return
	}
	if strings.Contains(r.URL.Path, "/cis/tagging/category") {
		trimTypes(w, r)
	}
	s.svc.ServeMux.ServeHTTP(w, r)
}

// trimTypes removes the namespace from the types in a request about a category.
// Clients send it since version 7.0.1, as urn:vim25:VirtualMachine, because vCenter no
// longer adds it. vCenter returns the type without it.
func trimTypes(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)) // an incomplete body is invalid JSON, which is refused
	body = bytes.ReplaceAll(body, []byte(`"urn:vim25:`), []byte(`"`))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// restMethod names a REST call as the documentation of its API does, without
// the identifiers in its path: "POST /rest/com/vmware/cis/tagging/tag/{id}".
func restMethod(r *http.Request) string {
	segments := strings.Split(r.URL.Path, "/")
	for i, segment := range segments {
		if strings.Contains(segment, ":") || strings.Count(segment, "-") == 4 {
			segments[i] = "{id}"
		}
	}
	name := r.Method + " " + strings.Join(segments, "/")
	if action := r.URL.Query().Get("~action"); action != "" {
		name += "?" + action
	}
	return name
}
