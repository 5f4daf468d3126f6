package e2e

import (
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

var _ = describeFull("Quick start with a class", func(hypervisor string) { quickStart(hypervisor, topologyFlavor) })

var _ = describeFull("Changes of a class", func(hypervisor string) {
	capie2e.ClusterClassChangesSpec(ctx, func() capie2e.ClusterClassChangesSpecInput {
		return capie2e.ClusterClassChangesSpecInput{
			E2EConfig: config(), ClusterctlConfigPath: clusterConfiguration(hypervisor),
			BootstrapClusterProxy: managements[0], ArtifactFolder: artifacts(),
			InfrastructureProvider: provider(hypervisor), Flavor: topologyFlavor,
			ControlPlaneWaiters: waiters(), PostNamespaceCreated: credentials(hypervisor),
			// The values of variables override the templates of a class, so each of
			// these is a field that the variables of the template do not set.
			ModifyControlPlaneFields: map[string]any{"spec.remediation.maxRetry": int64(3)},
			ModifyMachineDeploymentBootstrapConfigTemplateFields: map[string]any{
				"spec.template.spec.postKubeadmCommands": []any{"touch /run/changed"},
			},
			ModifyMachineDeploymentInfrastructureMachineTemplateFields: map[string]any{"spec.template.spec.powerOff.mode": "SoftThenHard"},
		}
	})
})

var _ = describeFull("Upgrade of a cluster's Kubernetes", func(hypervisor string) {
	capie2e.ClusterUpgradeConformanceSpec(ctx, func() capie2e.ClusterUpgradeConformanceSpecInput {
		h, err := bed.FactsOf(hypervisor)
		Expect(err).NotTo(HaveOccurred())
		return capie2e.ClusterUpgradeConformanceSpecInput{
			E2EConfig: config(), ClusterctlConfigPath: clusterConfiguration(hypervisor),
			BootstrapClusterProxy: managements[0], ArtifactFolder: artifacts(),
			InfrastructureProvider: provider(hypervisor), Flavor: ptr.To(topologyFlavor),
			ControlPlaneWaiters: waiters(), PostNamespaceCreated: credentials(hypervisor),
			// The conformance tests are an image.
			SkipConformanceTests: true,
			WorkerMachineCount:   ptr.To[int64](1),
			// The template name contains the version, so the spec has to change only
			// the version.
			ClusterctlVariables: map[string]string{h.TemplateVariable: "nova-node-<version>"},
		}
	})
})
