package controlplane

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

var _ = Describe("Settings that are not carried out", func() {
	It("do not replace machines that an admission policy alters", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = nil })
		alter(ctx, r.namespace)
		workloadCluster := &fakeClusters{}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		machine := r.expectMachines(ctx, 1)[0]
		Expect(r.condition(ctx, controlplanev1.SettingsAppliedCondition)()).To(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Reason", controlplanev1.SettingsMachinesAlteredReason),
			HaveField("Message", ContainSubstring(machine.Name+" (config.preKubeadmCommands)"))))
		Expect(eventsOf(reconciler)).To(ContainElement(ContainSubstring("MachinesAltered")))

		workloadCluster.Cluster = facts.Cluster{Answers: true, KubeadmConfig: true, EtcdProblem: "not queried", Nodes: []facts.Node{{Name: machine.Name, ControlPlane: true, Ready: true, Components: scopetest.AllRun}}}
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(r.expectMachines(ctx, 1)[0].UID).To(Equal(machine.UID))
		Expect(r.condition(ctx, controlplanev1.RollingOutCondition)()).To(HaveField("Status", metav1.ConditionFalse))
		Expect(eventsOf(reconciler)).NotTo(ContainElement(ContainSubstring("MachinesAltered")), "it has one event")

		By("rolling out a change of the spec all the same")
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Config.PostKubeadmCommands = []string{"true"} })
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(r.condition(ctx, controlplanev1.RollingOutCondition)()).To(And(
			HaveField("Status", metav1.ConditionTrue), HaveField("Message", ContainSubstring("config.postKubeadmCommands"))))
	})

	It("name a version of Kubernetes that is not known", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas, c.Spec.Version = nil, "v1.99.0" })
		workloadCluster := &fakeClusters{}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		machine := r.expectMachines(ctx, 1)[0]
		workloadCluster.Cluster = facts.Cluster{
			Answers: true, KubeadmConfig: true, KubeadmVersion: "v1.99.0", EtcdProblem: "not queried",
			Nodes: []facts.Node{{Name: machine.Name, ControlPlane: true, Ready: true, Components: scopetest.AllRun}},
		}
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(r.condition(ctx, controlplanev1.SettingsAppliedCondition)()).To(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Reason", controlplanev1.SettingsVersionUnknownReason),
			HaveField("Message", ContainSubstring("CoreDNS version of Kubernetes v1.99.0"))))
		Expect(eventsOf(reconciler)).To(ContainElement(ContainSubstring("VersionUnknown")))
	})

	It("name a network that changed after kubeadm init, and write nothing", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = nil })
		workloadCluster := &fakeClusters{}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		machine := r.expectMachines(ctx, 1)[0]
		workloadCluster.Cluster = facts.Cluster{
			Answers: true, KubeadmConfig: true, KubeadmVersion: "v1.36.3", EtcdProblem: "not queried",
			KubeadmStored: kubeadm.Document{Content: "kind: ClusterConfiguration\nnetworking: {serviceSubnet: 10.96.0.0/12}\n"},
			Nodes:         []facts.Node{{Name: machine.Name, ControlPlane: true, Ready: true, Components: scopetest.AllRun}},
		}
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(r.condition(ctx, controlplanev1.SettingsAppliedCondition)()).To(HaveField("Status", metav1.ConditionTrue))

		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		cluster.Spec.ClusterNetwork.Services.CIDRBlocks = []string{"10.97.0.0/16"}
		Expect(testEnv.Client.Update(ctx, cluster)).To(Succeed())
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(r.condition(ctx, controlplanev1.SettingsAppliedCondition)()).To(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Reason", controlplanev1.SettingsClusterNetworkChangedReason),
			HaveField("Message", ContainSubstring(`serviceSubnet is "10.96.0.0/12" in the workload cluster and "10.97.0.0/16" in the Cluster`))))
		for _, wrote := range workloadCluster.upgrades {
			next, err := kubeadm.NextConfiguration(workloadCluster.KubeadmStored, wrote.Configuration, wrote.Version)
			Expect(err).NotTo(HaveOccurred())
			Expect(next.Content).NotTo(ContainSubstring("10.97"))
		}
		Expect(r.expectMachines(ctx, 1)[0].UID).To(Equal(machine.UID))
		Expect(r.condition(ctx, controlplanev1.RollingOutCondition)()).To(HaveField("Status", metav1.ConditionFalse))
	})
})

// alter creates an admission policy that alters all NovaConfigs of a namespace.
func alter(ctx context.Context, namespace string) {
	GinkgoHelper()
	rules := &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups: []string{bootstrapv1.GroupVersion.Group}, APIVersions: []string{bootstrapv1.GroupVersion.Version}, Resources: []string{"novaconfigs"},
			},
		}}},
	}
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: rules, ReinvocationPolicy: admissionv1.NeverReinvocationPolicy, FailurePolicy: ptr.To(admissionv1.Fail),
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/spec", value: Object.spec{preKubeadmCommands: ["site-agent install"]}}]`},
			}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: namespace},
	}
	for _, o := range []client.Object{policy, binding} {
		Expect(testEnv.Client.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(testEnv.Client.Delete(ctx, o)).To(Succeed()) })
	}
	Eventually(func() ([]string, error) {
		probe := &bootstrapv1.NovaConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}}
		err := testEnv.Client.Create(ctx, probe, client.DryRunAll)
		return probe.Spec.PreKubeadmCommands, err
	}).Should(ContainElement("site-agent install"))
}

// eventsOf returns the events that a reconciler has recorded.
func eventsOf(r *Reconciler) []string {
	GinkgoHelper()
	recorder, ok := r.Recorder.(*events.FakeRecorder)
	Expect(ok).To(BeTrue())
	var messages []string
	for len(recorder.Events) > 0 {
		messages = append(messages, <-recorder.Events)
	}
	return messages
}
