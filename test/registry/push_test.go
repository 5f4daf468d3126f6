package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// run runs a program with further environment variables.
func run(t *testing.T, env []string, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	t.Logf("$ %s %s\n%s", program, strings.Join(args, " "), out)
	return string(out), err
}

// newKey writes a private key, and the public key beside it.
func newKey(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	data, err := x509.MarshalPKCS8PrivateKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	g.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(t.TempDir(), "key")
	g.Expect(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: data}), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(file+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600)).To(Succeed())
	return file
}

// TestImagesArePushedAndPulled copies signed images of a release to a registry
// with TLS and a login, verifies them with cosign's library, and copies them from
// there to a folder as a closed network does, and to another registry.
func TestImagesArePushedAndPulled(t *testing.T) {
	g := NewWithT(t)
	programs, err := tools.Paths(t.Context(), io.Discard, "nova-release", "cosign")
	g.Expect(err).NotTo(HaveOccurred())
	program := programs["nova-release"]
	start := func(port int) *Server {
		s, err := Start(t.Context(), Options{
			Dir: t.TempDir(), IP: "127.0.0.1", Port: port, Inside: func(do func() error) error { return do() }, Log: t.Output(),
		})
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(s.Stop)
		return s
	}
	login := func(s *Server, password string) []string {
		dir, err := s.Login(password)
		g.Expect(err).NotTo(HaveOccurred())
		return []string{"DOCKER_CONFIG=" + dir}
	}
	one, other := start(25443), start(25444)

	dir := t.TempDir()
	for _, name := range []string{"bin/amd64/nova-vsphere", "bin/arm64/nova-vsphere", "sbom/nova-vsphere-amd64.cdx.json", "sbom/nova-vsphere-arm64.cdx.json"} {
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600)).To(Succeed())
	}
	key, otherKey := newKey(t), newKey(t)
	_, err = run(t, nil, program, "images", "-dir", dir, "-version", "v0.1.7", "-registry", "registry.example/nova", "-revision", "abc", "-key", key)
	g.Expect(err).NotTo(HaveOccurred())
	layout := filepath.Join(dir, "images")

	for _, registry := range []string{"https://" + one.Address, one.Address + "/nova/", "registry/nova"} {
		said, err := run(t, login(one, one.Password), program, "push", "-layout", layout, registry)
		g.Expect(err).To(HaveOccurred())
		g.Expect(said).To(ContainSubstring("must have the form HOST[:PORT][/PATH]"))
	}
	said, err := run(t, login(one, one.Password), program, "push", "-layout", layout, one.Address+"/nova")
	g.Expect(err).To(HaveOccurred())
	g.Expect(said).To(ContainSubstring("is signed by an unknown CA: name the file of the CA with -ca"))
	said, err = run(t, login(one, "wr0ng"), program, "push", "-layout", layout, "-ca", one.CAFile(), one.Address+"/nova")
	g.Expect(err).To(HaveOccurred())
	g.Expect(said).To(And(ContainSubstring(`run "docker login `+one.Address), Not(ContainSubstring("wr0ng"))))
	_, err = run(t, login(one, one.Password), program, "push", "-layout", layout, "-ca", one.CAFile(), one.Address+"/nova")
	g.Expect(err).NotTo(HaveOccurred())

	// A published version does not change.
	pushed, err := run(t, login(one, one.Password), program, "push", "-layout", layout, "-ca", one.CAFile(), one.Address+"/nova")
	g.Expect(err).NotTo(HaveOccurred(), "the same images")
	changed := t.TempDir()
	g.Expect(os.CopyFS(changed, os.DirFS(dir))).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(changed, "bin", "arm64", "nova-vsphere"), []byte("changed"), 0o600)).To(Succeed())
	_, err = run(t, nil, program, "images", "-dir", changed, "-version", "v0.1.7", "-registry", "registry.example/nova", "-revision", "abc", "-key", key)
	g.Expect(err).NotTo(HaveOccurred())
	said, err = run(t, login(one, one.Password), program, "push", "-layout", filepath.Join(changed, "images"), "-ca", one.CAFile(), one.Address+"/nova")
	g.Expect(err).To(HaveOccurred())
	g.Expect(said).To(And(ContainSubstring("a published version is never changed"), Not(ContainSubstring("nova-vsphere@"))))

	for _, command := range [][]string{{"verify"}, {"verify-attestation", "-type", "https://slsa.dev/provenance/v1"}} {
		for public, valid := range map[string]bool{key + ".pub": true, otherKey + ".pub": false} {
			args := append(slices.Clone(command), "-key", public, "-registry-cacert", one.CAFile(), one.Address+"/nova/nova-vsphere:v0.1.7")
			_, err = run(t, login(one, one.Password), programs["cosign"], args...)
			g.Expect(err == nil).To(Equal(valid), command[0])
		}
	}

	list := filepath.Join(dir, "list")
	g.Expect(os.WriteFile(list, []byte("# images\nregistry.example/nova/nova-vsphere:v0.1.7\nregistry.example/nova/nova-vsphere:v0.1.7 renamed:v1\n"), 0o600)).To(Succeed())
	bundled := filepath.Join(dir, "bundled")
	_, err = run(t, login(one, one.Password), program, "pull", "-layout", bundled, "-from", one.Address, "-ca", one.CAFile(), list)
	g.Expect(err).NotTo(HaveOccurred())
	tags := strings.Split(strings.TrimSpace(pushed), "\n")
	g.Expect(tags[len(tags)-1]).To(HaveSuffix("/nova/nova-vsphere:v0.1.7"), "after its signatures")
	_, err = run(t, login(other, other.Password), program, "push", "-layout", bundled, "-ca", other.CAFile(), other.Address)
	g.Expect(err).NotTo(HaveOccurred())
	for _, path := range []string{"/v2/nova/nova-vsphere/manifests/v0.1.7", "/v2/renamed/manifests/v1"} {
		status, data, err := other.Get(t.Context(), path, "application/vnd.oci.image.index.v1+json")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status).To(Equal(http.StatusOK))
		var index struct {
			Manifests []struct{ Platform struct{ Architecture string } }
		}
		g.Expect(json.Unmarshal(data, &index)).To(Succeed())
		g.Expect(index.Manifests).To(HaveLen(2), "both architectures")
	}
}
