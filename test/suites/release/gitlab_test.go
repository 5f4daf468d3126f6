package release

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"
)

const (
	gitlabHost = "gitlab.release.test"
	// gitlabAddress is reached inside the environment. The vCenter has this port of
	// the gateway.
	gitlabAddress = "127.0.0.2"
	packages      = "https://" + gitlabHost + "/api/v4/projects/7/packages/generic"
	// scope is the token that may upload.
	scope = "glpat-release"
)

// gitlab is the part of a GitLab that has generic packages. Reads need no token:
// the project is public.
type gitlab struct {
	dir, ca string
	// stop ends it.
	stop func() error
}

// startGitLab serves packages inside the environment.
func startGitLab(ctx context.Context) *gitlab {
	GinkgoHelper()
	g := &gitlab{dir: GinkgoT().TempDir()}
	chain, key, err := cert.GenerateSelfSignedCertKey(gitlabHost, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	g.ca = filepath.Join(g.dir, "ca.crt")
	Expect(os.WriteFile(g.ca, chain, 0o600)).To(Succeed())
	certificate, err := tls.X509KeyPair(chain, key)
	Expect(err).NotTo(HaveOccurred())
	listener, err := b.Listen(ctx, "tcp", gitlabAddress+":443")
	Expect(err).NotTo(HaveOccurred())
	handler := http.NewServeMux()
	handler.HandleFunc("GET /api/v4/projects/7/packages/generic/{package}/{version}/{file}", g.get)
	handler.HandleFunc("PUT /api/v4/projects/7/packages/generic/{package}/{version}/{file}", g.put)
	served := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(GinkgoWriter, "gitlab: ", 0)}
	go func() {
		_ = served.Serve(tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}))
	}()
	g.stop = served.Close
	DeferCleanup(served.Close)
	return g
}

func (g *gitlab) path(r *http.Request) string {
	return filepath.Join(g.dir, r.PathValue("package"), r.PathValue("version"), r.PathValue("file"))
}

func (g *gitlab) get(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, g.path(r)) }

// names are those that GitLab accepts for packages, versions and files.
var names = regexp.MustCompile(`^[A-Za-z0-9._+~-]+$`)

func (g *gitlab) put(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	valid := names.MatchString(r.PathValue("package")) && names.MatchString(r.PathValue("version")) && names.MatchString(r.PathValue("file"))
	switch {
	case r.Header.Get("Private-Token") != scope:
		w.WriteHeader(http.StatusUnauthorized)
	case err != nil || !valid:
		w.WriteHeader(http.StatusBadRequest)
	case os.MkdirAll(filepath.Dir(g.path(r)), 0o755) != nil || os.WriteFile(g.path(r), data, 0o600) != nil:
		w.WriteHeader(http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// reach returns a command inside the environment that knows the address of the server
// by its name.
func (g *gitlab) reach(args ...string) command {
	GinkgoHelper()
	hosts := filepath.Join(g.dir, "hosts")
	Expect(os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+gitlabAddress+" "+gitlabHost+"\n"), 0o644)).To(Succeed())
	return command{inside: true, args: append([]string{
		"unshare", "--mount", "sh", "-euc", `mount --bind "$0" /etc/hosts; exec "$@"`, hosts,
	}, args...)}
}
