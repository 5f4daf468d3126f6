package e2e

import (
	"k8s.io/utils/ptr"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"
)

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
