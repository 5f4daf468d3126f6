package e2e

import (
	"slices"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// owned reports whether one of an object's owners is of one of these kinds.
func owned(owners []metav1.OwnerReference, kinds ...string) bool {
	return slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool { return slices.Contains(kinds, owner.Kind) })
}

// phase is a phase of a cluster's deletion, in which objects of these kinds and
// the machines that they own are deleted. The blocking objects stop the
// deletion until the spec removes their finalizers.
func phase(blocking string, kinds ...string) capie2e.ClusterDeletionPhase {
	return capie2e.ClusterDeletionPhase{
		ObjectFilter: func(object corev1.ObjectReference, owners []metav1.OwnerReference) bool {
			return slices.Contains(kinds, object.Kind) || object.Kind == "Machine" && owned(owners, kinds...)
		},
		BlockingObjectFilter: func(object corev1.ObjectReference, _ []metav1.OwnerReference) bool {
			return object.Kind == blocking
		},
	}
}

var _ = describeFull("Deletion of a cluster", func(hypervisor string) {
	capie2e.ClusterDeletionSpec(ctx, func() capie2e.ClusterDeletionSpecInput {
		h, err := bed.FactsOf(hypervisor)
		Expect(err).NotTo(HaveOccurred())
		return capie2e.ClusterDeletionSpecInput{
			E2EConfig: config(), ClusterctlConfigPath: clusterConfiguration(hypervisor),
			BootstrapClusterProxy: managements[0], ArtifactFolder: artifacts(),
			InfrastructureProvider: provider(hypervisor), ControlPlaneMachineCount: ptr.To[int64](3),
			ControlPlaneWaiters: waiters(), PostNamespaceCreated: credentials(hypervisor),
			ClusterDeletionPhases: []capie2e.ClusterDeletionPhase{
				phase("Machine", "MachineDeployment", "MachineSet"),
				phase("Machine", "NovaControlPlane"),
				phase(h.Kinds+"Cluster", h.Kinds+"Cluster"),
			},
		}
	})
})
