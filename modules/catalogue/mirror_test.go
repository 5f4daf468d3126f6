package catalogue

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const (
	// Passwords of any characters reach Gitea unchanged.
	adminPassword = `ad"min\pass word`
	fluxPassword  = `fl"ux\pass word`
)

// newSource serves the references of a release repository to readers with one of the passwords, and
// returns its address. Gitea reads the rest.
func newSource(t *testing.T, passwords ...string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case user != "release" || !slices.Contains(passwords, password):
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/nova/release.git/info/refs") || r.URL.RawQuery != "service=git-upload-pack":
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/nova/release.git"
}

// gitea is the part of Gitea's API that the mirror uses. It refuses requests with
// unknown fields, without their dependencies, or for objects that exist.
type gitea struct {
	mu        sync.Mutex
	passwords map[string]string
	org       bool
	mirrors   map[string]string
	// sources are the passwords that mirrors read their source with.
	sources  map[string]string
	readers  []string
	migrated int
	// hung delays each response until the request is canceled.
	hung bool
}

func newGitea(t *testing.T) (*gitea, string) {
	t.Helper()
	g := &gitea{passwords: map[string]string{}, mirrors: map[string]string{}, sources: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/users/{name}", func(w http.ResponseWriter, r *http.Request) {
		_, ok := g.passwords[r.PathValue("name")]
		answer(w, ok, http.StatusOK)
	})
	mux.HandleFunc("GET /api/v1/orgs/nova", func(w http.ResponseWriter, _ *http.Request) { answer(w, g.org, http.StatusOK) })
	mux.HandleFunc("GET /api/v1/repos/nova/release", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, g.mirrors["nova/release"] != "", http.StatusOK)
	})
	mux.HandleFunc("DELETE /api/v1/repos/nova/release", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, g.mirrors["nova/release"] != "", http.StatusNoContent)
		delete(g.mirrors, "nova/release")
		g.readers = nil
	})
	mux.HandleFunc("POST /api/v1/admin/users", g.createUser)
	mux.HandleFunc("PATCH /api/v1/admin/users/{name}", g.editUser)
	mux.HandleFunc("POST /api/v1/orgs", g.createOrg)
	mux.HandleFunc("POST /api/v1/repos/migrate", g.migrate)
	mux.HandleFunc("PUT /api/v1/repos/nova/release/collaborators/{name}", g.addReader)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.hung {
			g.mu.Unlock()
			<-r.Context().Done()
			g.mu.Lock()
			return
		}
		if user, password, _ := r.BasicAuth(); user != "root" || password != adminPassword {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return g, server.URL
}

func answer(w http.ResponseWriter, ok bool, status int) {
	if !ok {
		status = http.StatusNotFound
	}
	w.WriteHeader(status)
}

// decode reads a request strictly, and refuses it otherwise.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil || r.Header.Get("Content-Type") != "application/json" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return false
	}
	return true
}

func (g *gitea) createUser(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Username, Email, Password, Visibility string
		MustChangePassword                    *bool `json:"must_change_password"`
	}
	if !decode(w, r, &in) {
		return
	}
	if in.Username == "" || !strings.Contains(in.Email, "@") || g.passwords[in.Username] != "" || in.MustChangePassword == nil || *in.MustChangePassword {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	g.passwords[in.Username] = in.Password
	w.WriteHeader(http.StatusCreated)
}

func (g *gitea) editUser(w http.ResponseWriter, r *http.Request) {
	var in struct {
		LoginName          string `json:"login_name"`
		SourceID           *int64 `json:"source_id"`
		Password           string `json:"password"`
		MustChangePassword bool   `json:"must_change_password"`
	}
	name := r.PathValue("name")
	if !decode(w, r, &in) {
		return
	}
	if in.SourceID == nil || in.LoginName == "" || in.MustChangePassword {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	_, ok := g.passwords[name]
	g.passwords[name] = in.Password
	answer(w, ok, http.StatusOK)
}

func (g *gitea) createOrg(w http.ResponseWriter, r *http.Request) {
	var in struct{ Username, Visibility string }
	if !decode(w, r, &in) {
		return
	}
	if g.org || in.Username != "nova" || in.Visibility != "private" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	g.org = true
	w.WriteHeader(http.StatusCreated)
}

func (g *gitea) migrate(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Service        string `json:"service"`
		CloneAddr      string `json:"clone_addr"`
		AuthUsername   string `json:"auth_username"`
		AuthPassword   string `json:"auth_password"`
		RepoOwner      string `json:"repo_owner"`
		RepoName       string `json:"repo_name"`
		Mirror         bool   `json:"mirror"`
		MirrorInterval string `json:"mirror_interval"`
		Private        bool   `json:"private"`
	}
	if !decode(w, r, &in) {
		return
	}
	name := in.RepoOwner + "/" + in.RepoName
	if !g.org || !in.Mirror || !in.Private || in.AuthPassword == "" || g.mirrors[name] != "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	g.migrated++
	g.mirrors[name], g.sources[name] = in.CloneAddr, in.AuthPassword
	w.WriteHeader(http.StatusCreated)
}

func (g *gitea) addReader(w http.ResponseWriter, r *http.Request) {
	var in struct{ Permission string }
	if !decode(w, r, &in) {
		return
	}
	name := r.PathValue("name")
	if g.passwords[name] == "" || g.mirrors["nova/release"] == "" || in.Permission != "read" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	g.readers = append(g.readers, name)
	w.WriteHeader(http.StatusNoContent)
}

// state describes the content.
func (g *gitea) state() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	readers := slices.Compact(slices.Sorted(slices.Values(g.readers)))
	return fmt.Sprintf("%q %v %v", g.passwords["flux"], g.mirrors, readers)
}

// mirror returns the command of the container, with further arguments and environment.
func mirror(t *testing.T, address string, arguments []string, environment ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{filepath.Join("gitea-mirror", "mirror.sh")}, arguments...)...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), "STATE=" + t.TempDir(), "GITEA_ADDRESS=" + address,
		"ADMIN_USERNAME=root", "ADMIN_PASSWORD=" + adminPassword, "FLUX_USERNAME=flux", "FLUX_PASSWORD=" + fluxPassword,
		"SOURCE_URL=" + newSource(t, "source"), "SOURCE_USERNAME=release", "SOURCE_PASSWORD=source",
	}, environment...)
	// A request that is under way when the script is stopped keeps its output open.
	cmd.WaitDelay = time.Second
	return cmd
}

// runMirror runs the script once, as its container does, and returns its output.
func runMirror(t *testing.T, address, password, reader string, environment ...string) (string, error) {
	t.Helper()
	environment = append(environment, "ADMIN_PASSWORD="+password, "FLUX_PASSWORD="+reader)
	out, err := mirror(t, address, []string{"once"}, environment...).CombinedOutput()
	return string(out), err
}

// The mirror fills an empty Gitea, copies the repository again into a full one at
// each start, and fills Gitea again after it has lost everything.
func TestMirrorFillsGitea(t *testing.T) {
	g, address := newGitea(t)
	source := newSource(t, "source")
	want := fmt.Sprintf("%q map[nova/release:%s] [flux]", fluxPassword, source)
	for _, what := range []string{"an empty", "a full", "a restarted"} {
		if what == "a restarted" {
			g.mu.Lock()
			g.passwords, g.mirrors, g.org, g.readers = map[string]string{}, map[string]string{}, false, nil
			g.mu.Unlock()
		}
		if out, err := runMirror(t, address, adminPassword, fluxPassword, "SOURCE_URL="+source); err != nil {
			t.Fatalf("filling %s Gitea: %v: %s", what, err, out)
		}
		if got := g.state(); got != want {
			t.Errorf("%s Gitea contains %s, not %s", what, got, want)
		}
	}
	if g.migrated != 3 {
		t.Errorf("the repository was copied %d times, not once at each start", g.migrated)
	}
}

// A changed address or password of the release repository restarts the script, which uses it: Gitea
// cannot change those of a mirror.
func TestMirrorUsesAChangedSource(t *testing.T) {
	g, address := newGitea(t)
	moved := newSource(t, "source", "renewed")
	for _, source := range [][2]string{{newSource(t, "source"), "source"}, {moved, "source"}, {moved, "renewed"}} {
		if out, err := mirror(t, address, []string{"once"}, "SOURCE_URL="+source[0], "SOURCE_PASSWORD="+source[1]).CombinedOutput(); err != nil {
			t.Fatalf("filling Gitea: %v: %s", err, out)
		}
		if got := [2]string{g.mirrors["nova/release"], g.sources["nova/release"]}; got != source {
			t.Errorf("the mirror reads %v, not %v", got, source)
		}
		if !slices.Contains(g.readers, "flux") {
			t.Error("the account of Flux cannot read the mirror")
		}
	}
}

// The script keeps the copy that exists while the release repository cannot be read.
func TestMirrorKeepsTheCopyWithoutItsSource(t *testing.T) {
	g, address := newGitea(t)
	source := newSource(t, "source")
	if out, err := runMirror(t, address, adminPassword, fluxPassword, "SOURCE_URL="+source); err != nil {
		t.Fatalf("filling Gitea: %v: %s", err, out)
	}
	want := g.state()
	closed := httptest.NewServer(nil)
	closed.Close()
	for message, environment := range map[string][]string{
		"status 401": {"SOURCE_URL=" + source, "SOURCE_PASSWORD=expired"},
		"status 404": {"SOURCE_URL=" + source + "/other"},
		"connect":    {"SOURCE_URL=" + closed.URL},
	} {
		out, err := runMirror(t, address, adminPassword, fluxPassword, environment...)
		if err == nil || !strings.Contains(out, message) || strings.Contains(out, "expired") {
			t.Errorf("the script reports %v, not %q: %s", err, message, out)
		}
		if got := g.state(); got != want {
			t.Errorf("after %q Gitea contains %s, not %s", message, got, want)
		}
	}
}

// While it runs, the script copies the repository again only if it is missing, and it stops at once when
// its container is stopped, also during a request.
func TestMirrorRunsUntilItIsStopped(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]bool{"between two checks": false, "during a request": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := NewWithT(t)
			g, address := newGitea(t)
			interval := "1"
			if !during {
				interval = "600"
			}
			cmd := mirror(t, address, nil, "INTERVAL="+interval)
			test.Expect(cmd.Start()).To(Succeed())
			readers := func(n int) func() int {
				return func() int {
					g.mu.Lock()
					defer g.mu.Unlock()
					return len(g.readers) - n
				}
			}
			if during {
				// Each check gives the account of Flux the permission to read.
				test.Eventually(readers(3), "60s").Should(BeNumerically(">=", 0))
				g.mu.Lock()
				g.hung = true
				g.mu.Unlock()
			} else {
				test.Eventually(readers(1), "60s").Should(BeZero())
			}
			test.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			var err error
			test.Eventually(done, "20s").Should(Receive(&err))
			if err != nil {
				test.Expect(err).To(MatchError(exec.ErrWaitDelay), "the script ends without an error")
			}
			test.Expect(cmd.ProcessState.ExitCode()).To(BeZero())
			test.Expect(g.migrated).To(Equal(1))
		})
	}
}

// A changed password of the account for Flux is set.
func TestMirrorChangesThePassword(t *testing.T) {
	g, address := newGitea(t)
	for _, password := range []string{fluxPassword, "other"} {
		if out, err := runMirror(t, address, adminPassword, password); err != nil {
			t.Fatalf("filling Gitea: %v: %s", err, out)
		}
		if g.passwords["flux"] != password {
			t.Errorf("the password is %q, not %q", g.passwords["flux"], password)
		}
	}
}

// A failure is reported without credentials, and nothing counts as filled.
func TestMirrorReportsFailures(t *testing.T) {
	g, address := newGitea(t)
	out, err := runMirror(t, address, "wrong", fluxPassword)
	if err == nil || !strings.Contains(out, "status 401") {
		t.Errorf("with a wrong password the script reports %v: %s", err, out)
	}
	if strings.Contains(out, "wrong") || strings.Contains(out, "source") || g.migrated > 0 {
		t.Errorf("the script prints credentials or continues: %s", out)
	}
	server := httptest.NewServer(nil)
	server.Close()
	if out, err := runMirror(t, server.URL, adminPassword, fluxPassword); err == nil || out == "" {
		t.Errorf("without Gitea the script reports %v: %q", err, out)
	}
}
