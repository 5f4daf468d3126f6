package e2e

import (
	"bytes"
	_ "embed"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// healthCheck is what the spec wants beside a cluster: nodes are unhealthy by a
// condition that only the spec sets.
//
//go:embed data/healthcheck.yaml
var healthCheck []byte

// remediationFlavor is the flavour with the health check.
const remediationFlavor = "md-remediation"

// addRemediationFlavor puts the flavour beside those of the release.
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

var _ = describeFull("Scaling of a MachineDeployment", func(hypervisor string) {
	capie2e.MachineDeploymentScaleSpec(ctx, func() capie2e.MachineDeploymentScaleSpecInput {
		return capie2e.MachineDeploymentScaleSpecInput{
			E2EConfig: config(), ClusterctlConfigPath: clusterConfiguration(hypervisor),
			BootstrapClusterProxy: managements[0], ArtifactFolder: artifacts(),
			InfrastructureProvider: provider(hypervisor),
			ControlPlaneWaiters:    waiters(), PostNamespaceCreated: credentials(hypervisor),
		}
	})
})

var _ = describeFull("Remediation of a MachineDeployment", func(hypervisor string) {
	capie2e.MachineDeploymentRemediationSpec(ctx, func() capie2e.MachineDeploymentRemediationSpecInput {
		addRemediationFlavor(hypervisor)
		return capie2e.MachineDeploymentRemediationSpecInput{
			E2EConfig: config(), ClusterctlConfigPath: clusterConfiguration(hypervisor),
			BootstrapClusterProxy: managements[0], ArtifactFolder: artifacts(),
			InfrastructureProvider: provider(hypervisor), Flavor: ptr.To(remediationFlavor),
			ControlPlaneWaiters: waiters(), PostNamespaceCreated: credentials(hypervisor),
		}
	})
})
