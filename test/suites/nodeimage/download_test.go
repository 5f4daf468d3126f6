package nodeimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// internet replaces the servers on the Internet with one on this computer. Scripts of the recipe
// connect to it through a proxy for HTTPS, as in a company's network.
type internet struct {
	// proxy is the address of the proxy, ca a file with the CA of the servers.
	proxy, ca string
	// address is that of the server.
	address string
}

// startInternet serves HTTPS for these names.
func startInternet(handler http.Handler, names ...string) *internet {
	GinkgoHelper()
	chain, key, err := cert.GenerateSelfSignedCertKey(names[0], nil, names[1:])
	Expect(err).NotTo(HaveOccurred())
	certificate, err := tls.X509KeyPair(chain, key)
	Expect(err).NotTo(HaveOccurred())
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	server.Config.ErrorLog = log.New(GinkgoWriter, "server: ", 0)
	server.StartTLS()
	i := &internet{ca: filepath.Join(GinkgoT().TempDir(), "ca.crt"), address: server.Listener.Addr().String()}
	Expect(os.WriteFile(i.ca, chain, 0o644)).To(Succeed())
	proxy := httptest.NewServer(http.HandlerFunc(i.connect))
	i.proxy = proxy.URL
	DeferCleanup(func() {
		server.CloseClientConnections()
		proxy.Close()
		server.Close()
	})
	return i
}

// connect connects a client of the proxy to the server, whatever name it requests.
func (i *internet) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
		return
	}
	to, err := net.Dial("tcp", i.address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusOK)
	from, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = to.Close()
		return
	}
	go func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}()
	_, _ = io.Copy(to, buffered)
	_ = to.Close()
}

// environment is that of a script that uses the proxy.
func (i *internet) environment(more ...string) []string {
	return append(append(os.Environ(), "HTTPS_PROXY="+i.proxy, "https_proxy="+i.proxy, "NO_PROXY=", "no_proxy="), more...)
}

// downloads are the files that programs.sh downloads, by host and path.
func downloads() map[string][]byte {
	GinkgoHelper()
	pins, err := os.ReadFile(filepath.Join(tools.Root(), "hack", "tools", "containerd", "go.mod"))
	Expect(err).NotTo(HaveOccurred())
	version := regexp.MustCompile(`containerd/containerd/v2 v(2\.\S+)`).FindSubmatch(pins)
	Expect(version).To(HaveLen(2))
	files := map[string][]byte{}
	for _, program := range []string{"kubelet", "kubeadm", "kubectl"} {
		files["dl.k8s.io/release/"+host.KubernetesVersion+"/bin/linux/amd64/"+program] = []byte("program " + program)
	}
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	Expect(archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755})).To(Succeed())
	for _, program := range []string{"containerd", "containerd-shim-runc-v2", "containerd-stress", "ctr"} {
		content := []byte("program " + program)
		Expect(archive.WriteHeader(&tar.Header{Name: "bin/" + program, Mode: 0o755, Size: int64(len(content))})).To(Succeed())
		_, err := archive.Write(content)
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(archive.Close()).To(Succeed())
	Expect(zipped.Close()).To(Succeed())
	v := string(version[1])
	files["github.com/containerd/containerd/releases/download/v"+v+"/containerd-"+v+"-linux-amd64.tar.gz"] = packed.Bytes()
	return files
}

// serve serves files with their checksums. GitHub redirects to another host.
func serve(files map[string][]byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.Host+r.URL.Path, "assets.example/")
		if r.Host == "github.com" {
			http.Redirect(w, r, "https://assets.example/"+path, http.StatusFound)
			return
		}
		if data, found := files[path]; found {
			_, _ = w.Write(data)
			return
		}
		for suffix, line := range map[string]string{".sha256": "%s", ".sha256sum": "%s  file.tar.gz\n"} {
			if data, found := files[strings.TrimSuffix(path, suffix)]; found && strings.HasSuffix(path, suffix) {
				sum := sha256.Sum256(data)
				_, _ = fmt.Fprintf(w, line, hex.EncodeToString(sum[:]))
				return
			}
		}
		http.NotFound(w, r)
	})
}

// download runs programs.sh.
func download(ctx context.Context, handler http.Handler) (dir, output string, err error) {
	GinkgoHelper()
	from := startInternet(handler, "dl.k8s.io", "github.com", "assets.example")
	dir = filepath.Join(GinkgoT().TempDir(), "programs")
	cmd := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "image", "programs.sh"), dir, host.KubernetesVersion)
	cmd.Env = from.environment("CURL_CA_BUNDLE=" + from.ca)
	out, err := cmd.CombinedOutput()
	return dir, string(out), err
}

var _ = Describe("The programs of a node image", func() {
	It("are downloaded with the versions of this project", func(ctx context.Context) {
		dir, out, err := download(ctx, serve(downloads()))
		Expect(err).NotTo(HaveOccurred(), out)
		for _, program := range []string{"kubelet", "kubeadm", "kubectl", "containerd", "containerd-shim-runc-v2", "ctr"} {
			Expect(os.ReadFile(filepath.Join(dir, program))).To(BeEquivalentTo("program " + program))
			info, err := os.Stat(filepath.Join(dir, program))
			Expect(err).NotTo(HaveOccurred())
			Expect(info.Mode().Perm()).To(BeEquivalentTo(0o755), program)
		}
	})

	DescribeTable("are rejected if the server", func(ctx context.Context, pattern, message string, change func(http.ResponseWriter)) {
		right := serve(downloads())
		_, out, err := download(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if matched, _ := regexp.MatchString(pattern, r.URL.Path); matched && r.Host != "github.com" {
				change(w)
				return
			}
			right.ServeHTTP(w, r)
		}))
		Expect(err).To(HaveOccurred(), out)
		Expect(out).To(ContainSubstring(message))
	},
		Entry("has another kubeadm", "/kubeadm$", "kubeadm: FAILED", func(w http.ResponseWriter) { _, _ = w.Write([]byte("another program")) }),
		Entry("has another containerd", `\.tar\.gz$`, "containerd.tar.gz: FAILED", func(w http.ResponseWriter) { _, _ = w.Write([]byte("another archive")) }),
		Entry("has no checksum of kubectl", `/kubectl\.sha256$`, "returned error: 404", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }),
		Entry("returns an empty checksum of containerd", `\.sha256sum$`, "no properly formatted", func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }),
	)
})

// marker is a file in the images that pull.sh pulls.
const marker = "pulled"

// pushImages pushes an image with the marker for each name.
func pushImages(ctx context.Context, to *internet, images ...string) {
	GinkgoHelper()
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	Expect(archive.WriteHeader(&tar.Header{Name: marker, Mode: 0o644})).To(Succeed())
	Expect(archive.Close()).To(Succeed())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil })
	Expect(err).NotTo(HaveOccurred())
	image, err := mutate.AppendLayers(empty.Image, layer)
	Expect(err).NotTo(HaveOccurred())
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers", DiffIDs: diffs(layer)}})
	Expect(err).NotTo(HaveOccurred())
	ca, err := os.ReadFile(to.ca)
	Expect(err).NotTo(HaveOccurred())
	pool := x509.NewCertPool()
	Expect(pool.AppendCertsFromPEM(ca)).To(BeTrue())
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, to.address)
		},
	}
	defer transport.CloseIdleConnections()
	for _, ref := range images {
		parsed, err := name.ParseReference(ref)
		Expect(err).NotTo(HaveOccurred())
		Expect(remote.Write(parsed, image, remote.WithContext(ctx), remote.WithTransport(transport))).To(Succeed())
	}
}

func diffs(layer v1.Layer) []v1.Hash {
	GinkgoHelper()
	diff, err := layer.DiffID()
	Expect(err).NotTo(HaveOccurred())
	return []v1.Hash{diff}
}

var _ = Describe("The container images of a node image", func() {
	It("are pulled by its own containerd", func(ctx context.Context) {
		from := startInternet(registry.New(registry.Logger(log.New(io.Discard, "", 0))), "registry.k8s.io", "ghcr.io")
		images := []string{"registry.k8s.io/pause:3.10.1", "ghcr.io/kube-vip/kube-vip:v0.9.1"}
		pushImages(ctx, from, images...)

		// The root file system of the hosts, with a folder for containerd that is not on an overlay.
		dir := GinkgoT().TempDir()
		root, data := filepath.Join(dir, "root"), filepath.Join(dir, "data")
		for _, folder := range []string{"root", "up", "work", "data"} {
			Expect(os.Mkdir(filepath.Join(dir, folder), 0o755)).To(Succeed())
		}
		run(ctx, "mount", "-t", "overlay", "-o", "lowerdir="+assets.Debian+",upperdir="+filepath.Join(dir, "up")+",workdir="+filepath.Join(dir, "work"), "overlay", root)
		DeferCleanup(func(ctx context.Context) { run(ctx, "umount", "--recursive", root) })
		Expect(os.MkdirAll(filepath.Join(root, "var/lib/containerd"), 0o755)).To(Succeed())
		run(ctx, "mount", "--bind", data, filepath.Join(root, "var/lib/containerd"))
		ca, err := os.ReadFile(from.ca)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(root, "ca.crt"), ca, 0o644)).To(Succeed())

		script := append([]string{"--mount", "--propagation", "private", filepath.Join(tools.Root(), "hack", "image", "pull.sh")}, images...)
		cmd := exec.CommandContext(ctx, "unshare", script...)
		cmd.Env = from.environment("ROOT="+root, "SSL_CERT_FILE=/ca.crt")
		out, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		known, err := os.ReadFile(filepath.Join(data, "io.containerd.metadata.v1.bolt/meta.db"))
		Expect(err).NotTo(HaveOccurred())
		for _, image := range images {
			Expect(bytes.Contains(known, []byte(image))).To(BeTrue(), image)
		}
		Expect(filepath.Glob(filepath.Join(data, "io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs", marker))).To(HaveLen(1), "both images have the same layer")
		Expect(filepath.Join(root, "etc/resolv.conf")).NotTo(BeAnExistingFile())

		cmd = exec.CommandContext(ctx, "unshare", append(script[:4:4], "registry.k8s.io/missing:v1")...)
		cmd.Env = from.environment("ROOT="+root, "SSL_CERT_FILE=/ca.crt")
		Expect(cmd.Run()).NotTo(Succeed(), "a missing image")
	})
})
