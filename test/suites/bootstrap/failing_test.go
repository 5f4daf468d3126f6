package bootstrap

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// failing is a command whose output contains a secret.
const failing = `echo "password: hunter22"; echo "the data disk is too small" >&2; exit 3`

// reportTimeout is the time for a hypervisor to deliver the report of a node.
const reportTimeout = 3 * time.Minute

// sick is a cluster whose first machine fails.
func sick(hypervisor string) bed.Cluster {
	name := "sick-" + hypervisor
	return bed.Cluster{Name: name, Namespace: name, Hypervisor: hypervisor, ControlPlanes: 1, Endpoint: endpoint(hypervisor, 80)}
}

// startSick makes the clusters whose first machines fail. They do so while
// others boot.
func startSick(ctx context.Context) {
	GinkgoHelper()
	for _, hypervisor := range bed.Hypervisors() {
		startWith(ctx, sick(hypervisor), failing)
	}
}

// startWith makes a cluster whose first machine runs a command before kubeadm.
// It is not replaced if it fails.
func startWith(ctx context.Context, c bed.Cluster, command string) {
	GinkgoHelper()
	objects, err := b.Generate(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	for _, o := range objects {
		if o.GetKind() != "NovaControlPlane" {
			continue
		}
		change(o, func(spec *bootstrapv1.NodeConfigSpec) {
			spec.PreKubeadmCommands = append(spec.PreKubeadmCommands, command)
		}, "spec", "config")
		// Its control plane would replace it at once.
		change(o, func(template *controlplanev1.NovaControlPlaneMachineTemplate) {
			template.ObjectMeta.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
		}, "spec", "machineTemplate")
	}
	Expect(b.Credentials(ctx, c)).To(Succeed())
	Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
}

var _ = Describe("A machine that fails", func() {
	for _, hypervisor := range bed.Hypervisors() {
		It("reports the reason on "+hypervisor+", without credentials", Label(hypervisor), func(ctx context.Context) {
			c := sick(hypervisor)
			// It may have been made a moment ago.
			Eventually(func() (string, error) { return b.Bootstrapped(ctx, c, "") }).WithTimeout(bootTimeout + reportTimeout).Should(And(
				HavePrefix(infrav1.BootstrapFailedReason+": The node failed to bootstrap: preKubeadmCommands 0001 failed with status 3; end of its log: "),
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
			AddReportEntry("message of the Machine", why)
		})
	}

	for _, hypervisor := range hypervisors() {
		It("reports on "+hypervisor+" that it was restarted before it became a node", Label(hypervisor), func(ctx context.Context) {
			name := "cut-" + hypervisor
			c := bed.Cluster{Name: name, Namespace: name, Hypervisor: hypervisor, ControlPlanes: 1, Endpoint: endpoint(hypervisor, 83)}
			startWith(ctx, c, "echo waiting for an end; sleep infinity")
			DeferCleanup(func(ctx context.Context) {
				Expect(b.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}})).To(Succeed())
			})
			var vm string
			Eventually(func(g Gomega, ctx context.Context) {
				list := &clusterv1.MachineList{}
				g.Expect(b.Client.List(ctx, list, client.InNamespace(c.Namespace))).To(Succeed())
				g.Expect(list.Items).To(HaveLen(1))
				vm = list.Items[0].Name
				log, err := b.Exec(ctx, vm, "cat", "/var/log/nova-bootstrap.log")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(log).To(HaveSuffix("waiting for an end"))
			}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())

			// The host stops without a shutdown and without a report: the call is aborted, too.
			_, _ = b.Exec(ctx, vm, "systemctl", "reboot", "--force", "--force")
			Eventually(func() (string, error) { return b.Bootstrapped(ctx, c, "") }).WithTimeout(bootTimeout + reportTimeout).Should(And(
				HavePrefix(infrav1.BootstrapFailedReason+": The node failed to bootstrap: The machine was restarted before it became a node; end of its log: "),
				HaveSuffix("| waiting for an end")))
			// It reports first and tidies up then.
			Eventually(func() (string, error) { return b.Exec(ctx, vm, "ls", "-A", "/var/lib/nova") }).
				WithTimeout(reportTimeout).ShouldNot(ContainSubstring("booting"))
		})
	}
})
