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

// Flavors of cluster templates: one of the release, and two that are made of
// those of the release for the specs that want them.
const (
	topologyFlavor    = "topology"
	workersFlavor     = "topology-workers"
	remediationFlavor = "md-remediation"
)

// healthCheck is what a spec wants beside a cluster: nodes are unhealthy by a
// condition that only the spec sets.
//
//go:embed data/healthcheck.yaml
var healthCheck []byte

// addRemediationFlavor puts the flavor into the release of a hypervisor's
// provider.
func addRemediationFlavor(hypervisor string) {
	GinkgoHelper()
	template, err := os.ReadFile(flavorFile(hypervisor, ""))
	Expect(err).NotTo(HaveOccurred())
	flavor := bytes.Join([][]byte{template, healthCheck}, []byte("---\n"))
	Expect(os.WriteFile(flavorFile(hypervisor, remediationFlavor), flavor, 0o600)).To(Succeed())
}

// addWorkersFlavor puts the flavor topology into the release with workers of
// no other role: the spec has pods on nodes of every MachineDeployment, and
// they tolerate no taints of roles.
func addWorkersFlavor(hypervisor string) {
	GinkgoHelper()
	template, err := os.ReadFile(flavorFile(hypervisor, topologyFlavor))
	Expect(err).NotTo(HaveOccurred())
	before, rest, found := bytes.Cut(template, []byte("        - class: infra\n"))
	Expect(found).To(BeTrue())
	_, after, found := bytes.Cut(rest, []byte("    variables:\n"))
	Expect(found).To(BeTrue())
	flavor := bytes.Join([][]byte{before, after}, []byte("    variables:\n"))
	Expect(os.WriteFile(flavorFile(hypervisor, workersFlavor), flavor, 0o600)).To(Succeed())
}

// flavorFile is where the release of a hypervisor's provider has a flavor.
func flavorFile(hypervisor, flavor string) string {
	GinkgoHelper()
	h, err := bed.FactsOf(hypervisor)
	Expect(err).NotTo(HaveOccurred())
	name := "cluster-template.yaml"
	if flavor != "" {
		name = "cluster-template-" + flavor + ".yaml"
	}
	return filepath.Join(filepath.Dir(facts.Config), "infrastructure-"+h.Provider, version, name)
}
