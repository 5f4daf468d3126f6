package e2e

import (
	"bytes"
	_ "embed"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// Flavours of cluster templates: one of the release, and one that is made of
// the release's default for the spec that wants it.
const (
	topologyFlavor    = "topology"
	remediationFlavor = "md-remediation"
)

// healthCheck is what a spec wants beside a cluster: nodes are unhealthy by a
// condition that only the spec sets.
//
//go:embed data/healthcheck.yaml
var healthCheck []byte

// addRemediationFlavor puts the flavour into the release of a hypervisor's
// provider.
func addRemediationFlavor(hypervisor string) {
	GinkgoHelper()
	h, err := bed.FactsOf(hypervisor)
	Expect(err).NotTo(HaveOccurred())
	release := filepath.Join(filepath.Dir(facts.Config), "infrastructure-"+h.Provider, version)
	template, err := os.ReadFile(filepath.Join(release, "cluster-template.yaml"))
	Expect(err).NotTo(HaveOccurred())
	flavor := bytes.Join([][]byte{template, healthCheck}, []byte("---\n"))
	Expect(os.WriteFile(filepath.Join(release, "cluster-template-"+remediationFlavor+".yaml"), flavor, 0o600)).To(Succeed())
}
