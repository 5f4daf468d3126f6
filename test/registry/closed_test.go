package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

const version = "v0.1.0"

// closed makes a network namespace in which only servers of its own are reached,
// and returns a function that calls another one inside.
func closed(t *testing.T) func(do func() error) error {
	t.Helper()
	g := NewWithT(t)
	enter := func(to netns.NsHandle, do func() error) error {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			return err
		}
		defer func() { _ = home.Close() }()
		if to == netns.None() {
			// The thread is then in the new namespace.
			_, err = netns.New()
		} else {
			err = netns.Set(to)
		}
		if err = errors.Join(err, do()); netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		return err
	}
	inside := netns.None()
	g.Expect(enter(netns.None(), func() error {
		link, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		inside, err = netns.Get()
		return errors.Join(err, netlink.LinkSetUp(link))
	})).To(Succeed())
	t.Cleanup(func() { _ = inside.Close() })
	return func(do func() error) error { return enter(inside, do) }
}

// fakeRelease makes the files of a release, with images that contain no manager.
func fakeRelease(t *testing.T, release string) string {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	managers, err := filepath.Glob(filepath.Join(tools.Root(), "cmd", "*"))
	g.Expect(err).NotTo(HaveOccurred())
	var list strings.Builder
	for _, path := range managers {
		name := filepath.Base(path)
		for _, file := range []string{"bin/amd64/" + name, "sbom/" + name + "-amd64.cdx.json"} {
			g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(dir, file), []byte(file), 0o600)).To(Succeed())
		}
		_, _ = fmt.Fprintf(&list, "registry.release.test/nova/%s:%s\n", name, version)
	}
	_, err = run(t, nil, release, "images", "-dir", dir, "-version", version, "-registry", "registry.release.test/nova", "-revision", "abc")
	g.Expect(err).NotTo(HaveOccurred())
	module := filepath.Join(dir, "catalogue", "module", "config.yaml")
	g.Expect(os.MkdirAll(filepath.Dir(module), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(module, []byte("of the catalogue"), 0o600)).To(Succeed())
	_, err = run(t, []string{"REGISTRY=registry.release.test/nova", "DIGESTS=" + filepath.Join(dir, "digests")},
		filepath.Join(tools.Root(), "hack", "components.sh"), filepath.Join(dir, "repository"), version)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = run(t, nil, release, "manifests", "-dir", dir, "-version", version, "-registry", "registry.release.test/nova", "-revision", "abc")
	g.Expect(err).NotTo(HaveOccurred())
	config, err := os.ReadFile(filepath.Join(dir, "repository", "clusterctl.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	// As release.sh writes it.
	written := strings.ReplaceAll(string(config), filepath.Join(dir, "repository"), "${NOVA_REPOSITORY:=${PWD}/out/repository}")
	g.Expect(os.WriteFile(filepath.Join(dir, "clusterctl.yaml"), []byte(written), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(dir, "fleet.yaml"), []byte("image: registry.release.test/nova/nova-fleet:"+version+"@"+digestOf(t, dir, "nova-fleet")+"\n"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(dir, "images.txt"), []byte(list.String()), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(dir, "registry"), []byte("registry.release.test/nova\n"), 0o600)).To(Succeed())
	_, err = run(t, nil, "sh", "-euc", `cd "$0"; find . -type f ! -name SHA256SUMS -printf '%P\0' | xargs -0 sha256sum >SHA256SUMS`, dir)
	g.Expect(err).NotTo(HaveOccurred())
	return dir
}

// digestOf reads the digest of an image of a release.
func digestOf(t *testing.T, dir, image string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "digests"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	found := regexp.MustCompile(`(?m)^` + image + ` (sha256:[0-9a-f]{64})$`).FindSubmatch(data)
	NewWithT(t).Expect(found).To(HaveLen(2))
	return string(found[1])
}

// inCatalogue reads a file of the catalogue in a registry, as Flux does.
func inCatalogue(t *testing.T, from *Server, path string) string {
	t.Helper()
	g := NewWithT(t)
	_, data, err := from.Get(t.Context(), "/v2/nova/catalogue/manifests/"+version, "application/vnd.oci.image.manifest.v1+json")
	g.Expect(err).NotTo(HaveOccurred())
	var manifest struct {
		Layers []struct{ MediaType, Digest string }
	}
	g.Expect(json.Unmarshal(data, &manifest)).To(Succeed())
	g.Expect(manifest.Layers).To(HaveLen(1))
	g.Expect(manifest.Layers[0].MediaType).To(Equal("application/vnd.cncf.flux.content.v1.tar+gzip"))
	_, data, err = from.Get(t.Context(), "/v2/nova/catalogue/blobs/"+manifest.Layers[0].Digest, "*/*")
	g.Expect(err).NotTo(HaveOccurred())
	packed := filepath.Join(t.TempDir(), "catalogue.tar.gz")
	g.Expect(os.WriteFile(packed, data, 0o600)).To(Succeed())
	text, err := run(t, nil, "tar", "-xzOf", packed, path)
	g.Expect(err).NotTo(HaveOccurred())
	return text
}

// pulled writes a chart to a folder, as "helm pull" does.
func pulled(t *testing.T, chart, version string) string {
	t.Helper()
	g := NewWithT(t)
	packed, err := bed.PackChart(chart, version, nil)
	g.Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(dir, chart+"-"+version+".tgz"), packed, 0o600)).To(Succeed())
	return dir
}

// TestBundleInstallsWithoutInternet makes a bundle from a registry of the user,
// and installs it where only another registry can be reached: all images that
// clusterctl then needs are in that registry.
func TestBundleInstallsWithoutInternet(t *testing.T) {
	g := NewWithT(t)
	programs, err := tools.Paths(t.Context(), io.Discard, "nova-release", "clusterctl")
	g.Expect(err).NotTo(HaveOccurred())
	release := programs["nova-release"]
	start := func(port int, inside func(do func() error) error) (*Server, []string) {
		s, err := Start(t.Context(), Options{Dir: t.TempDir(), IP: "127.0.0.1", Port: port, Inside: inside, Log: t.Output()})
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(s.Stop)
		login, err := s.Login(s.Password)
		g.Expect(err).NotTo(HaveOccurred())
		return s, []string{"DOCKER_CONFIG=" + login, "NO_PROXY=*"}
	}
	dir := fakeRelease(t, release)

	// The registry of the user has the other images: these contain no programs.
	mirror, login := start(25445, func(do func() error) error { return do() })
	var list strings.Builder
	others := []string{
		"registry.k8s.io/cluster-api/cluster-api-controller:v1.14.2", "quay.io/jetstack/cert-manager-controller:v1.0.0",
		"quay.io/jetstack/cert-manager-cainjector:v1.0.0", "quay.io/jetstack/cert-manager-webhook:v1.0.0", "ghcr.io/fluxcd/source-controller:v1.9.2",
	}
	work := t.TempDir()
	for _, image := range others {
		_, path, _ := strings.Cut(image, "/")
		_, _ = fmt.Fprintf(&list, "registry.release.test/nova/nova-vsphere:%s %s\n", version, path)
	}
	g.Expect(os.WriteFile(filepath.Join(work, "others"), []byte(list.String()), 0o600)).To(Succeed())
	_, err = run(t, login, release, "push", "-layout", filepath.Join(dir, "images"), "-ca", mirror.CAFile(), mirror.Address+"/nova")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = run(t, login, release, "pull", "-layout", filepath.Join(work, "images"), "-from", mirror.Address, "-ca", mirror.CAFile(), filepath.Join(work, "others"))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = run(t, login, release, "push", "-layout", filepath.Join(work, "images"), "-ca", mirror.CAFile(), mirror.Address)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(work, "list"), []byte(strings.Join(others, "\n")), 0o600)).To(Succeed())
	manager := "apiVersion: v1\nkind: Pod\nmetadata: {name: cert-manager, namespace: cert-manager}\nspec:\n  containers:\n  - {name: main, image: \"" + others[1] + "\"}\n"
	g.Expect(os.WriteFile(filepath.Join(work, "cert-manager.yaml"), []byte(manager), 0o600)).To(Succeed())

	file := filepath.Join(work, "nova.tar.zst")
	bundled := func(version string) (string, error) {
		return run(t, append(login, "FROM="+mirror.Address, "CA="+mirror.CAFile(), "IMAGES="+filepath.Join(work, "list"),
			"CERT_MANAGER="+filepath.Join(work, "cert-manager.yaml"), "CHARTS="+pulled(t, "cilium", "1.18.0+nova.1"), "WITHOUT_DOCS=1"),
			filepath.Join(tools.Root(), "hack", "bundle.sh"), dir, version, file)
	}
	said, err := bundled("v0.1.1")
	g.Expect(err).To(HaveOccurred())
	g.Expect(said).To(ContainSubstring(`is not version "v0.1.1"`))
	digests, err := os.ReadFile(filepath.Join(dir, "digests"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, "digests"), nil, 0o600)).To(Succeed())
	said, err = bundled(version)
	g.Expect(err).To(HaveOccurred())
	g.Expect(said).To(ContainSubstring("digests: FAILED"))
	g.Expect(os.WriteFile(filepath.Join(dir, "digests"), digests, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(dir, "node image.qcow2"), []byte("no part of the release"), 0o600)).To(Succeed())
	_, err = bundled(version)
	g.Expect(err).NotTo(HaveOccurred())
	mirror.Stop()

	// From here on there is the file and one registry.
	inside := closed(t)
	registry, login := start(25446, inside)
	target := t.TempDir()
	_, err = run(t, nil, "tar", "-C", target, "--zstd", "-xf", file)
	g.Expect(err).NotTo(HaveOccurred())
	bundle := filepath.Join(target, "nova-"+version)
	g.Expect(filepath.Join(bundle, "release", "digests")).To(BeAnExistingFile())
	g.Expect(filepath.Join(bundle, "release", "node image.qcow2")).NotTo(BeAnExistingFile())
	within := func(program string, args ...string) string {
		var said string
		g.Expect(inside(func() error {
			if _, err := net.Dial("tcp", "127.0.0.1:25445"); err == nil {
				return errors.New("the registry of the user is reached")
			}
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Env = append(append(os.Environ(), login...), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "XDG_CONFIG_HOME="+work)
			out, err := cmd.CombinedOutput()
			said = string(out)
			if err != nil {
				return fmt.Errorf("%s: %w: %s", program, err, out)
			}
			return nil
		})).To(Succeed())
		return said
	}
	within(filepath.Join(bundle, "install.sh"), registry.Address, registry.CAFile())
	g.Expect(inCatalogue(t, registry, "module/config.yaml")).To(Equal("of the catalogue"))
	components := &strings.Builder{}
	for _, provider := range [][]string{
		{"--core", "cluster-api:v1.14.2"}, {"--infrastructure", "nova-vsphere"}, {"--infrastructure", "nova-zvirt"},
		{"--infrastructure", "nova-proxmox"}, {"--bootstrap", "nova"}, {"--control-plane", "nova"}, {"--addon", "nova"},
	} {
		components.WriteString(within(programs["clusterctl"], append([]string{"generate", "provider", "--config", filepath.Join(bundle, "clusterctl.yaml")}, provider...)...))
	}
	fleet, err := os.ReadFile(filepath.Join(bundle, "fleet.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	components.Write(fleet)
	images := []string{
		registry.Address + "/jetstack/cert-manager-webhook:v1.0.0", registry.Address + "/fluxcd/source-controller:v1.9.2",
		registry.Address + "/nova/charts/cilium:1.18.0_nova.1",
	}
	for _, found := range regexp.MustCompile(`image: (\S+)`).FindAllStringSubmatch(components.String(), -1) {
		images = append(images, found[1])
	}
	g.Expect(images).To(HaveLen(11), "two of the list, a chart, six managers, the fleet page and the core")
	for _, image := range images {
		g.Expect(image).To(HavePrefix(registry.Address + "/"))
		path, digest, pinned := strings.Cut(strings.TrimPrefix(image, registry.Address+"/"), "@")
		repository, tag, _ := strings.Cut(path, ":")
		if pinned {
			tag = digest
		}
		g.Expect(pinned).To(Equal(regexp.MustCompile(`^nova/nova-`).MatchString(path)), image)
		status, _, err := registry.Get(t.Context(), "/v2/"+repository+"/manifests/"+tag,
			"application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status).To(Equal(http.StatusOK), image)
	}
}
