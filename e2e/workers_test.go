package e2e

import (
	"k8s.io/utils/ptr"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
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

// The pods of the spec use an image that hosts with the older version of
// Kubernetes have, so the spec needs an environment for all specs. It does not
// depend on the hypervisor, so it runs on one.
var _ = everything && describe(bed.VSphere, "Drain of nodes", func(hypervisor string) {
	capie2e.NodeDrainTimeoutSpec(ctx, func() capie2e.NodeDrainTimeoutSpecInput {
		addWorkersFlavor(hypervisor)
		return capie2e.NodeDrainTimeoutSpecInput{
			E2EConfig: config(), ClusterctlConfigPath: clusterConfiguration(hypervisor),
			BootstrapClusterProxy: managements[0], ArtifactFolder: artifacts(),
			InfrastructureProvider: provider(hypervisor), Flavor: ptr.To(workersFlavor),
			ControlPlaneWaiters: waiters(), PostNamespaceCreated: credentials(hypervisor),
		}
	})
})
