package bootstrap_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/inplace"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// inPlaceSpec is the spec of a worker that can be changed in place.
func inPlaceSpec(content string) bootstrapv1.NovaConfigSpec {
	return bootstrapv1.NovaConfigSpec{
		NodeConfigSpec: bootstrapv1.NodeConfigSpec{Files: []bootstrapv1.File{{Path: "/etc/test", Content: content}}},
		Rollout:        bootstrapv1.WorkerRolloutSpec{InPlace: bootstrapv1.InPlacePrefer},
	}
}

// asNode returns a client of a kubelet.
func asNode(name string) client.Client {
	GinkgoHelper()
	config := rest.CopyConfig(api.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: api.Scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// join creates the Node of a machine, and reports it in the machine's status.
func (b *bed) join(ctx context.Context, machine *clusterv1.Machine) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine.Name}}
	Expect(api.Client.Create(ctx, node)).To(Succeed())
	DeferCleanup(func(ctx context.Context) error { return api.Client.Delete(ctx, node) })
	b.patchMachine(ctx, machine, func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: node.Name} })
	return node
}

var _ = Describe("A worker that can be changed in place", func() {
	It("reads its own settings only, and completes an update when it reports their revision", func(ctx SpecContext) {
		b := newBed(ctx)
		configs := b.run(0)
		b.cluster(ctx, "blue")
		b.connectAs(ctx, "blue", api.Config, api.Config.Host, api.Config.CAData)
		name, other := b.namespace+"-w-1", b.namespace+"-w-2"
		machine := b.worker(ctx, "blue", name, inPlaceSpec("first"))
		b.worker(ctx, "blue", other, bootstrapv1.NovaConfigSpec{})
		Eventually(b.config(ctx, name)).Should(beAvailable())
		Eventually(b.config(ctx, other)).Should(beAvailable())
		data, err := b.secret(ctx, name)()
		Expect(err).NotTo(HaveOccurred())
		Expect(nodeConfig(data).Follow).To(BeTrue())
		Expect(nodeConfig(data).Kubelet.Args).To(ContainElements(
			nodeconfig.Setting{Name: "node-ip", Value: nodeconfig.NodeIP}, nodeconfig.Setting{Name: "node-labels", Value: "topology.kubernetes.io/zone=rack-1"}))
		unchanged, err := b.secret(ctx, other)()
		Expect(err).NotTo(HaveOccurred())
		Expect(nodeConfig(unchanged).Follow).To(BeFalse())

		By("joining")
		node := b.join(ctx, machine)
		key := client.ObjectKey{Namespace: nodeconfig.SettingsNamespace, Name: nodeconfig.SettingsName(name)}
		role := &rbacv1.Role{}
		Eventually(func() error { return api.Client.Get(ctx, key, role) }).Should(Succeed())
		Expect(role.OwnerReferences).To(ConsistOf(HaveField("UID", node.UID)))
		Expect(role.Rules).To(HaveLen(1))
		Eventually(b.secret(ctx, name)).Should(HaveField("Annotations", HaveKeyWithValue("nova.bootstrap.cluster.x-k8s.io/settings-allowed", string(node.UID))))

		By("rejecting a request for a machine that is not being updated")
		extension := &inplace.Extension{Client: b.Client, Reader: b.Client, WorkloadClusters: configs.WorkloadClusters, Settings: configs.Settings}
		request := &runtimehooksv1.UpdateMachineRequest{}
		request.Desired.Machine.Namespace, request.Desired.Machine.Name = b.namespace, name
		update := func() *runtimehooksv1.UpdateMachineResponse {
			response := &runtimehooksv1.UpdateMachineResponse{}
			extension.UpdateMachine(ctx, request, response)
			return response
		}
		Expect(update()).To(And(HaveField("Status", runtimehooksv1.ResponseStatusFailure), HaveField("Message", ContainSubstring("is no node that is being updated"))))
		Expect(apierrors.IsNotFound(api.Client.Get(ctx, key, &corev1.Secret{}))).To(BeTrue())

		By("updating")
		before := machine.DeepCopy()
		machine.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
		Expect(b.Patch(ctx, machine, client.MergeFrom(before))).To(Succeed())
		config, err := b.config(ctx, name)()
		Expect(err).NotTo(HaveOccurred())
		config.Spec = inPlaceSpec("second")
		Expect(b.Update(ctx, config)).To(Succeed())
		Expect(update()).To(And(HaveField("Status", runtimehooksv1.ResponseStatusSuccess), HaveField("RetryAfterSeconds", BeNumerically(">", 0)),
			HaveField("Message", HavePrefix("the host agent has not reported yet"))))
		settings := &corev1.Secret{}
		kubelet := asNode(name)
		Expect(kubelet.Get(ctx, key, settings)).To(Succeed())
		Expect(settings.OwnerReferences).To(ConsistOf(HaveField("UID", node.UID)))
		unpacked, revision, err := nodeconfig.Unpack(settings.Data[nodeconfig.SettingsKey])
		Expect(err).NotTo(HaveOccurred())
		Expect(unpacked.Node).To(Equal(name))
		Expect(unpacked.Machine.Files).To(ContainElement(And(HaveField("Path", "/etc/test"), HaveField("Text", "second"))))

		By("reading as other nodes, and more than the own settings")
		forbidden := Satisfy(apierrors.IsForbidden)
		Expect(asNode(other).Get(ctx, key, settings)).To(forbidden)
		Expect(kubelet.List(ctx, &corev1.SecretList{}, client.InNamespace(nodeconfig.SettingsNamespace))).To(forbidden)
		Expect(kubelet.Delete(ctx, settings)).To(forbidden)
		Expect(kubelet.Get(ctx, client.ObjectKey{Namespace: nodeconfig.SettingsNamespace, Name: nodeconfig.SettingsName(other)}, settings)).To(forbidden)

		By("reporting")
		report := func(status corev1.ConditionStatus, revision, text string) {
			GinkgoHelper()
			before := node.DeepCopy()
			node.Status.Conditions = []corev1.NodeCondition{{Type: nodeconfig.ConfiguredCondition, Status: status, Reason: "x", Message: nodeconfig.ReportMessage(revision, text)}}
			Expect(api.Client.Status().Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
		}
		report(corev1.ConditionTrue, "first-boot", "the settings are applied")
		Expect(update()).To(And(HaveField("RetryAfterSeconds", BeNumerically(">", 0)), HaveField("Message", "waiting for the host agent to read the settings")))
		report(corev1.ConditionFalse, revision, "changing kubelet: it failed")
		Expect(update()).To(And(HaveField("RetryAfterSeconds", BeNumerically(">", 0)), HaveField("Message", "changing kubelet: it failed")))
		report(corev1.ConditionTrue, revision, "the settings are applied")
		Expect(update()).To(And(HaveField("Status", runtimehooksv1.ResponseStatusSuccess), HaveField("RetryAfterSeconds", BeZero())))

		By("reporting a spec that cannot be rendered in the message")
		config, err = b.config(ctx, name)()
		Expect(err).NotTo(HaveOccurred())
		config.Spec.Files[0].ContentFormat = bootstrapv1.ContentFormatTemplate
		config.Spec.Files[0].Content = "{{ .Nothing }}"
		Expect(b.Update(ctx, config)).To(Succeed())
		Expect(update()).To(And(HaveField("Status", runtimehooksv1.ResponseStatusSuccess), HaveField("RetryAfterSeconds", BeNumerically(">", 0)), HaveField("Message", ContainSubstring("files[/etc/test]"))))
	})
})
