package bootstrap

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// failing is a command that tells more than it should.
const failing = `echo "password: hunter22"; echo "the data disk is too small" >&2; exit 3`

// reportTimeout is how long a hypervisor may take to pass on what a node says.
const reportTimeout = 3 * time.Minute

// sick is a cluster whose first machine fails.
func sick(hypervisor string) bed.Cluster {
	endpoint := "10.77.0.61"
	if hypervisor == bed.ZVirt {
		endpoint = "10.77.0.62"
	}
	name := "sick-" + hypervisor
	return bed.Cluster{Name: name, Namespace: name, Hypervisor: hypervisor, ControlPlanes: 1, Endpoint: endpoint}
}

// startSick makes the clusters whose first machines fail. They do so while
// others boot.
func startSick(ctx context.Context) {
	GinkgoHelper()
	for _, hypervisor := range bed.Hypervisors() {
		c := sick(hypervisor)
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		for _, o := range objects {
			if o.GetKind() != "NovaControlPlane" {
				continue
			}
			change(o, func(spec *bootstrapv1.NovaConfigSpec) {
				spec.PreKubeadmCommands = append(spec.PreKubeadmCommands, failing)
			}, "spec", "config")
			// Its control plane would replace it at once.
			change(o, func(template *controlplanev1.NovaControlPlaneMachineTemplate) {
				template.ObjectMeta.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
			}, "spec", "machineTemplate")
		}
		Expect(b.Credentials(ctx, c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
	}
}

var _ = Describe("A machine that fails", func() {
	for _, hypervisor := range bed.Hypervisors() {
		It("says why on "+hypervisor+", without credentials", Label(hypervisor), func(ctx context.Context) {
			c := sick(hypervisor)
			Eventually(func() (string, error) { return b.Bootstrapped(ctx, c, "") }).WithTimeout(reportTimeout).Should(And(
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
