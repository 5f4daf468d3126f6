package manifests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

var _ = It("a release's list for closed networks names all images that run unasked", func(ctx SpecContext) {
	cmd := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "images.sh"), "v0.1.7", "nova-vsphere")
	cmd.Env = append(cmd.Environ(), "REGISTRY=registry.example")
	cmd.Stderr = GinkgoWriter
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred())
	images := strings.Fields(string(out))
	Expect(images).To(HaveEach(MatchRegexp(`^[a-z0-9.]+(/[a-z0-9-]+)+:v?[0-9][a-z0-9.-]*$`)))
	Expect(images).To(ContainElements(
		"registry.example/nova-vsphere:v0.1.7", controlplanev1.DefaultKubeVIPImage, bootstrapv1.DefaultAPIServerLoadBalancerImage,
		HavePrefix("registry.k8s.io/cluster-api/cluster-api-controller:"), HavePrefix("quay.io/jetstack/cert-manager-webhook:"),
		HavePrefix("ghcr.io/fluxcd/helm-controller:"), HavePrefix("registry.k8s.io/autoscaling/cluster-autoscaler:"),
		HavePrefix("registry.k8s.io/kube-apiserver:"), HavePrefix("registry.k8s.io/etcd:"), HavePrefix("registry.k8s.io/pause:"),
	))
})

var _ = It("an image has the manager's binary and nothing else, and the same binary gives the same bytes", func(ctx SpecContext) {
	paths, err := tools.Paths(ctx, GinkgoWriter, "nova-release")
	Expect(err).NotTo(HaveOccurred())
	layout := func() (string, map[string][]byte) {
		dir := GinkgoT().TempDir()
		for _, name := range []string{"bin/amd64/nova-vsphere", "sbom/nova-vsphere-amd64.cdx.json"} {
			Expect(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(dir, name), []byte("a binary"), 0o600)).To(Succeed())
		}
		out, err := exec.CommandContext(ctx, paths["nova-release"], "images", "-dir", dir, "-version", "v0.1.7",
			"-registry", "registry.example", "-revision", "abc", "-epoch", "1700000000").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		digests, err := os.ReadFile(filepath.Join(dir, "digests"))
		Expect(err).NotTo(HaveOccurred())
		blobs, err := filepath.Glob(filepath.Join(dir, "images", "blobs", "sha256", "*"))
		Expect(err).NotTo(HaveOccurred())
		found := map[string][]byte{}
		for _, blob := range append(blobs, filepath.Join(dir, "images", "index.json")) {
			found[filepath.Base(blob)], err = os.ReadFile(blob)
			Expect(err).NotTo(HaveOccurred())
		}
		return string(digests), found
	}
	digests, first := layout()
	again, second := layout()
	Expect(again).To(Equal(digests))
	Expect(second).To(Equal(first), "the same bytes")
	Expect(digests).To(MatchRegexp(`^nova-vsphere sha256:[0-9a-f]{64}\n$`))
	layers := 0
	for _, content := range first {
		layer, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			continue
		}
		layers++
		Expect(unpack(layer)).To(Equal(map[string][]byte{"manager": []byte("a binary")}))
	}
	Expect(layers).To(Equal(1))
})

// unpack returns the files of a tar archive.
func unpack(archive io.Reader) map[string][]byte {
	GinkgoHelper()
	files := map[string][]byte{}
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		Expect(err).NotTo(HaveOccurred())
		files[header.Name], err = io.ReadAll(reader)
		Expect(err).NotTo(HaveOccurred())
	}
}
