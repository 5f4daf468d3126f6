package joining

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// failing is a command that tells more than it should.
const failing = `echo "password: hunter22"; echo "the data disk is too small" >&2; exit 3`

// sick is a cluster whose first machine fails.
func sick(hypervisor string) bed.Cluster {
	endpoint := "10.77.0.61"
	if hypervisor == bed.ZVirt {
		endpoint = "10.77.0.62"
	}
	name := "sick-" + hypervisor
	return bed.Cluster{Name: name, Namespace: name, Hypervisor: hypervisor, ControlPlanes: 1, Endpoint: endpoint}
}

var _ = Describe("A machine that fails", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		for _, hypervisor := range bed.Hypervisors() {
			c := sick(hypervisor)
			objects, err := b.Generate(ctx, c)
			Expect(err).NotTo(HaveOccurred())
			controlPlane := find(objects, "NovaControlPlane").Object
			commands, _, err := unstructured.NestedStringSlice(controlPlane, "spec", "config", "preKubeadmCommands")
			Expect(err).NotTo(HaveOccurred())
			Expect(unstructured.SetNestedStringSlice(controlPlane, append(commands, failing), "spec", "config", "preKubeadmCommands")).To(Succeed())
			// Its control plane would replace it at once.
			Expect(unstructured.SetNestedField(controlPlane, "", "spec", "machineTemplate", "metadata", "annotations", clusterv1.MachineSkipRemediationAnnotation)).To(Succeed())
			Expect(b.Credentials(ctx, c)).To(Succeed())
			Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		}
	})

	for _, hypervisor := range bed.Hypervisors() {
		It("says why on "+hypervisor+", without credentials", Label(hypervisor), func(ctx context.Context) {
			c := sick(hypervisor)
			Eventually(bootstrapped(ctx, c, "")).WithTimeout(reportTimeout).Should(And(
				HavePrefix(infrav1.BootstrapFailedReason+": The node failed to bootstrap: preKubeadmCommands 0001 failed with status 3; its log ends: "),
				HaveSuffix("password: *** | the data disk is too small")))
			var why string
			Eventually(func(g Gomega, ctx context.Context) {
				list := &clusterv1.MachineList{}
				g.Expect(b.Client.List(ctx, list, client.InNamespace(c.Namespace))).To(Succeed())
				g.Expect(list.Items).To(HaveLen(1))
				ready := conditions.Get(&list.Items[0], clusterv1.MachineInfrastructureReadyCondition)
				g.Expect(ready).To(HaveField("Reason", infrav1.BootstrapFailedReason))
				why = ready.Message
			}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
			Expect(why).To(ContainSubstring("the data disk is too small"))
			Expect(strings.Contains(why, "hunter22")).To(BeFalse())
			AddReportEntry("the Machine says", why)
		})
	}
})

// Under another control plane provider, machines join as they do under ours.
var _ = describeInFull("Machines of a KubeadmControlPlane", func() {
	It("join with their own credential, which is worthless afterwards", func(ctx context.Context) {
		c := bed.Cluster{
			Name: "kcp", Namespace: "kcp", Hypervisor: bed.VSphere, ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.63", KubeadmControlPlane: true,
		}
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Credentials(ctx, c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		machine := worker(ctx, c.Namespace, find(objects, "MachineDeployment").GetName())
		tenant, err := b.TenantClient(ctx, c.Key())
		Expect(err).NotTo(HaveOccurred())
		const signer = certificatesv1.KubeAPIServerClientKubeletSignerName
		Expect(ask(ctx, as(discovery(ctx, machine)), tenant, signer, machine.Name, certificatesv1.UsageClientAuth)).
			To(HavePrefix("Denied: Machine " + machine.Name + " has joined before"))
		Expect(b.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}})).To(Succeed())
	})
})
