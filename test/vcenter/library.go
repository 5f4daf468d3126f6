package vcenter

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25/types"
)

// Paths of the REST API for items of content libraries.
const (
	ovfItems      = "/vcenter/ovf/library-item/"
	templateItems = "/vcenter/vm-template/library-items"
	libraryItems  = rest.Path + "/com/vmware/content/library/item"
)

// serveLibrary handles the calls about library items that the simulator
// implements only in part: a deployment ignores the requested notes, and a VM
// template does not contain the ID of its VM. It reports whether it has sent a
// response.
func (s *Server) serveLibrary(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Method == http.MethodPost && strings.Contains(r.URL.Path, ovfItems) && r.URL.Query().Get("~action") == "deploy":
		s.deployItem(w, r)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, templateItems):
		s.addTemplateItem(w, r)
	case r.Method == http.MethodGet && strings.HasSuffix(path.Dir(r.URL.Path), templateItems):
		vm, ok := s.templateItems.Load(path.Base(r.URL.Path))
		if !ok {
			http.NotFound(w, r)
			return true
		}
		answerREST(w, r, map[string]any{"vm_template": vm})
	default:
		return false
	}
	return true
}

// deployItem deploys an OVF and gives the VM its notes. It answers, as vCenter
// does, that there is a VM of this name already.
func (s *Server) deployItem(w http.ResponseWriter, r *http.Request) {
	var requested struct {
		Spec struct {
			Name       string `json:"name"`
			Annotation string `json:"annotation"`
		} `json:"deployment_spec"`
		Target struct {
			Folder string `json:"folder_id"`
		} `json:"target"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, &requested)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// One deployment after the other, so that two of one name are not made.
	s.deploying.Lock()
	defer s.deploying.Unlock()
	if s.vmIn(requested.Target.Folder, requested.Spec.Name) != nil {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"type":"com.vmware.vapi.std.errors.already_exists","value":{}}`)
		return
	}
	if !s.sleep(s.delays.of("DeployLibraryItem")) {
		return
	}
	answer := httptest.NewRecorder()
	inner := r.Clone(r.Context())
	inner.Body = io.NopCloser(bytes.NewReader(body))
	s.svc.ServeMux.ServeHTTP(answer, inner)
	if vm := s.vmIn(requested.Target.Folder, requested.Spec.Name); vm != nil {
		s.locked(func(ctx *simulator.Context) {
			vm.Config.Annotation = requested.Spec.Annotation
			ctx.Update(vm, []types.PropertyChange{{Name: "config.annotation", Val: requested.Spec.Annotation}})
		})
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// vmIn returns the VM of a name in a folder.
func (s *Server) vmIn(folder, name string) (found *simulator.VirtualMachine) {
	s.locked(func(ctx *simulator.Context) {
		in, ok := ctx.Map.Get(types.ManagedObjectReference{Type: "Folder", Value: folder}).(*simulator.Folder)
		if !ok {
			return
		}
		found, _ = ctx.Map.FindByName(name, in.ChildEntity).(*simulator.VirtualMachine)
	})
	return found
}

// addTemplateItem creates an item for a VM template, and records its VM.
// vCenter creates a copy of the VM; a client that clones it cannot see the
// difference.
func (s *Server) addTemplateItem(w http.ResponseWriter, r *http.Request) {
	var requested struct {
		Spec struct {
			Name    string `json:"name"`
			Library string `json:"library"`
			VM      string `json:"source_vm"`
		} `json:"spec"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&requested); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	item, err := json.Marshal(map[string]any{"create_spec": map[string]string{
		"name": requested.Spec.Name, "library_id": requested.Spec.Library, "type": "vm-template",
	}})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	inner := r.Clone(r.Context())
	inner.URL.Path, inner.RequestURI = libraryItems, libraryItems
	inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(item)), int64(len(item))
	answer := httptest.NewRecorder()
	s.svc.ServeMux.ServeHTTP(answer, inner)
	var made struct {
		Value string `json:"value"`
	}
	if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &made) != nil {
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return
	}
	s.templateItems.Store(made.Value, requested.Spec.VM)
	answerREST(w, r, made.Value)
}

// answerREST responds in the format of the API version of the request.
func answerREST(w http.ResponseWriter, r *http.Request, value any) {
	if strings.HasPrefix(r.URL.Path, rest.Path) {
		value = map[string]any{"value": value}
	}
	answer, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}
