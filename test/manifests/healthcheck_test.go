package manifests

import (
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// replaces reports whether a health check lets a machine be replaced when some
// of all are unhealthy. It counts as Cluster API does, which rounds down
// (isAllowedRemediation of its machinehealthcheck).
func replaces(check *clusterv1.MachineHealthCheck, unhealthy, all int) bool {
	GinkgoHelper()
	trigger := check.Spec.Remediation.TriggerIf
	Expect(trigger.UnhealthyInRange).To(BeEmpty())
	bound := intstr.FromString("100%")
	if trigger.UnhealthyLessThanOrEqualTo != nil {
		bound = *trigger.UnhealthyLessThanOrEqualTo
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(&bound, all, false)
	Expect(err).NotTo(HaveOccurred())
	return unhealthy <= most
}

var _ = DescribeTable("a pool of the class", func(ctx SpecContext, provider, role, own string) {
	cluster := topology(provider, requiredValues+own)
	cluster.Spec.Topology.Workers.MachineDeployments[0].Class = role
	pool := desire(ctx, cluster, class(provider)).MachineDeployments["infra-a"]
	for all := 1; all <= 20; all++ {
		Expect(replaces(pool.MachineHealthCheck, 1, all)).To(BeTrue(), "the one that is broken, of %d", all)
	}
	Expect(replaces(pool.MachineHealthCheck, 3, 20)).To(BeFalse(), "three at once are no accident")
	Expect(replaces(pool.MachineHealthCheck, 2, 2)).To(BeTrue(), "both of two")
	Expect(pool.Object.Spec.Remediation.MaxInFlight).To(HaveValue(Equal(intstr.FromInt32(1))), "one after the other")

	By("having a bound of its own")
	bound := intstr.FromString("40%")
	cluster.Spec.Topology.Workers.MachineDeployments[0].HealthCheck = clusterv1.MachineDeploymentTopologyHealthCheck{
		Checks: clusterv1.MachineDeploymentTopologyHealthCheckChecks{UnhealthyNodeConditions: pool.MachineHealthCheck.Spec.Checks.UnhealthyNodeConditions},
		Remediation: clusterv1.MachineDeploymentTopologyHealthCheckRemediation{
			TriggerIf: clusterv1.MachineDeploymentTopologyHealthCheckRemediationTriggerIf{UnhealthyLessThanOrEqualTo: &bound},
		},
	}
	pool = desire(ctx, cluster, class(provider)).MachineDeployments["infra-a"]
	Expect(replaces(pool.MachineHealthCheck, 8, 20)).To(BeTrue())
	Expect(pool.Object.Spec.Remediation.MaxInFlight).To(HaveValue(Equal(intstr.FromInt32(1))), "the value of the class still applies")
},
	func(provider, role, _ string) string {
		return fmt.Sprintf("%s of %s replaces unhealthy machines at any size", role, provider)
	},
	Entry(nil, "nova-vsphere", "worker", "network: tenants\n"),
	Entry(nil, "nova-vsphere", "infra", "network: tenants\n"),
	Entry(nil, "nova-vsphere", "ingress", "network: tenants\n"),
	Entry(nil, "nova-zvirt", "worker", "network: a/b\nplacement: {computeCluster: Default}\n"),
	Entry(nil, "nova-proxmox", "worker", "network: vmbr0\n"),
	Entry(nil, "nova-zvirt", "infra", "network: a/b\nplacement: {computeCluster: Default}\n"),
	Entry(nil, "nova-proxmox", "infra", "network: vmbr0\n"),
	Entry(nil, "nova-zvirt", "ingress", "network: a/b\nplacement: {computeCluster: Default}\n"),
	Entry(nil, "nova-proxmox", "ingress", "network: vmbr0\n"),
)

// The flavor has one check for the nodes of all pools.
var _ = It("the flavor ha replaces a node that is broken", func() {
	file, err := os.ReadFile(filepath.Join(tools.Root(), "templates", "flavors", "ha", "healthchecks.yaml"))
	Expect(err).NotTo(HaveOccurred())
	objects, err := Objects(file)
	Expect(err).NotTo(HaveOccurred())
	Expect(objects).To(HaveLen(2))
	for _, object := range objects {
		check := &clusterv1.MachineHealthCheck{}
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, check)).To(Succeed())
		for all := 3; all <= 20; all++ {
			Expect(replaces(check, 1, all)).To(BeTrue(), "%s, of %d", check.Name, all)
		}
		if _, ok := check.Spec.Selector.MatchLabels[clusterv1.MachineControlPlaneLabel]; ok {
			expectControlPlaneCheck(check)
		}
	}
})

// expectControlPlaneCheck expects that one control plane machine is replaced, and
// none of two that fail at once.
func expectControlPlaneCheck(check *clusterv1.MachineHealthCheck) {
	GinkgoHelper()
	for all := 1; all <= 9; all++ {
		Expect(replaces(check, 1, all)).To(BeTrue(), "the one that is broken, of %d", all)
	}
	Expect(replaces(check, 2, 3)).To(BeFalse(), "two of three share a cause")
}

var _ = DescribeTable("the control plane of the class", func(ctx SpecContext, provider, own string) {
	expectControlPlaneCheck(desire(ctx, topology(provider, requiredValues+own), class(provider)).ControlPlane.MachineHealthCheck)
},
	func(provider, _ string) string { return "of " + provider + " replaces one machine that is broken" },
	Entry(nil, "nova-vsphere", "network: tenants\n"),
	Entry(nil, "nova-zvirt", "network: a/b\nplacement: {computeCluster: Default}\n"),
	Entry(nil, "nova-proxmox", "network: vmbr0\n"),
)
