package e2e

import (
	"k8s.io/utils/ptr"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"
)

// quickStart defines the quick start spec for a flavor of the cluster template.
func quickStart(hypervisor, flavor string) {
	capie2e.QuickStartSpec(ctx, func() capie2e.QuickStartSpecInput {
		input := capie2e.QuickStartSpecInput{
			E2EConfig: config(), ClusterctlConfigPath: clusterConfiguration(hypervisor),
			BootstrapClusterProxy: managements[0], ArtifactFolder: artifacts(),
			InfrastructureProvider: provider(hypervisor), Flavor: ptr.To(flavor),
			ControlPlaneWaiters: waiters(), PostNamespaceCreated: credentials(hypervisor),
		}
		if everything {
			input.PostMachinesProvisioned = resilient(hypervisor, flavor == topologyFlavor)
		}
		return input
	})
}

var _ = describeOn("Quick start", func(hypervisor string) { quickStart(hypervisor, "") })
