package manifests

import (
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
		"registry.example/nova-vsphere:v0.1.7", controlplanev1.DefaultKubeVIPImage, bootstrapv1.DefaultAPIBalancerImage,
		HavePrefix("registry.k8s.io/cluster-api/cluster-api-controller:"), HavePrefix("quay.io/jetstack/cert-manager-webhook:"),
		HavePrefix("ghcr.io/fluxcd/helm-controller:"), HavePrefix("registry.k8s.io/autoscaling/cluster-autoscaler:"),
		HavePrefix("registry.k8s.io/kube-apiserver:"), HavePrefix("registry.k8s.io/etcd:"), HavePrefix("registry.k8s.io/pause:"),
	))
})
