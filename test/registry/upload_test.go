package registry

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// proxyTo starts a proxy that connects each request to one server, whatever host
// the request names.
func proxyTo(t *testing.T, server *httptest.Server) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		to, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = to.Close() }()
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("hijacking the connection: %v", err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(to, conn) }()
		_, _ = io.Copy(conn, to)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// TestTokenStaysAtItsServer uploads to a GitLab that redirects downloads, as one
// with an object storage does. Only the GitLab gets the token.
func TestTokenStaysAtItsServer(t *testing.T) {
	g := NewWithT(t)
	programs, err := tools.Paths(t.Context(), io.Discard, "nova-release")
	g.Expect(err).NotTo(HaveOccurred())
	var mu sync.Mutex
	tokens := map[string]string{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		tokens[r.Host+r.URL.Path] = r.Header.Get("Private-Token")
		mu.Unlock()
		switch {
		case r.Host == "storage.example.com":
			_, _ = io.WriteString(w, "content")
		case r.URL.Path == "/elsewhere":
			http.Redirect(w, r, "https://storage.example.com/file", http.StatusFound)
		default:
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	g.Expect(os.WriteFile(ca, certificate, 0o600)).To(Succeed())
	file := filepath.Join(dir, "repository", "nova-vsphere", "v0.1.7", "metadata.yaml")
	g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(file, []byte("content"), 0o600)).To(Succeed())

	env := []string{"HTTPS_PROXY=" + proxyTo(t, server), "NO_PROXY=", "GITLAB_TOKEN=t0ken"}
	_, err = run(t, env, programs["nova-release"], "upload", "-dir", filepath.Join(dir, "repository"), "-version", "v0.1.7", "-ca", ca,
		"https://gitlab.example.com/packages/generic")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(tokens).To(Equal(map[string]string{
		"gitlab.example.com/packages/generic/nova-vsphere/v0.1.7/metadata.yaml": "t0ken",
		"gitlab.example.com/elsewhere":                                          "t0ken",
		"storage.example.com/file":                                              "",
	}))
}
