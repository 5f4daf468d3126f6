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

// Flavors of cluster templates: one flavor of the release, and two that the
// specs build from flavors of the release.
const (
	topologyFlavor    = "topology"
	workersFlavor     = "topology-workers"
	remediationFlavor = "md-remediation"
)

// healthCheck is the MachineHealthCheck that a spec needs: nodes are unhealthy
// by a condition that only the spec sets.
//
//go:embed data/healthcheck.yaml
var healthCheck []byte

// addRemediationFlavor adds the flavor to the release of a hypervisor's
// provider.
func addRemediationFlavor(hypervisor string) {
	GinkgoHelper()
	template, err := os.ReadFile(flavorFile(hypervisor, ""))
	Expect(err).NotTo(HaveOccurred())
	flavor := bytes.Join([][]byte{template, healthCheck}, []byte("---\n"))
	Expect(os.WriteFile(flavorFile(hypervisor, remediationFlavor), flavor, 0o600)).To(Succeed())
}

// addWorkersFlavor adds the flavor topology to the release, with workers of one
// role only: the spec creates pods on nodes of every MachineDeployment, and
// they do not tolerate taints of roles.
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

// flavorFile returns the path of a flavor in the release of a hypervisor's
// provider.
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
