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
	paths, err := tools.Paths(ctx, GinkgoWriter, "image")
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	binary := filepath.Join(dir, "nova-vsphere")
	Expect(os.WriteFile(binary, []byte("a binary"), 0o600)).To(Succeed())
	archive := func(name string) []byte {
		output := filepath.Join(dir, name)
		out, err := exec.CommandContext(ctx, paths["image"], "-binary", binary, "-name", "registry.example/nova-vsphere:v0.1.7",
			"-version", "v0.1.7", "-epoch", "1700000000", "-output", output).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		data, err := os.ReadFile(output)
		Expect(err).NotTo(HaveOccurred())
		return data
	}
	first := archive("first.tar")
	Expect(bytes.Equal(archive("second.tar"), first)).To(BeTrue(), "the same bytes")
	layers := 0
	for name, content := range unpack(bytes.NewReader(first)) {
		if !strings.HasSuffix(name, ".tar.gz") {
			continue
		}
		layers++
		layer, err := gzip.NewReader(bytes.NewReader(content))
		Expect(err).NotTo(HaveOccurred())
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
