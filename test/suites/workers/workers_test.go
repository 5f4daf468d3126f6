package workers

import (
	"context"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

const (
	label      = "row.node.cluster.x-k8s.io/name"
	annotation = "example.com/owner"
	taintKey   = "example.com/reserved"
	// Hooks of a third party, as it names them: prefix, purpose, value its owner.
	preDrain     = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/migrate-data"
	preTerminate = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/keep-logs"
)

// All specs use one cluster: after each of them its workers are complete again.
var _ = func() bool {
	for i, name := range hypervisors() {
		Describe("Workers on "+name, Ordered, ContinueOnFailure, Label(name), func() { lives(name, 11+i) })
	}
	return true
}()

func lives(hypervisor string, address int) {
	c := &bed.Cluster{
		Name: "work-" + hypervisor, Namespace: "work-" + hypervisor, Hypervisor: hypervisor,
		ControlPlanes: 1, Workers: 2, Endpoint: "10.77.0." + strconv.Itoa(address),
	}

	BeforeAll(func(ctx context.Context) {
		started := time.Now()
		Expect(b.Create(ctx, *c)).To(Succeed())
		awaitHealthy(ctx, c, bootTimeout)
		figuref("1 control plane and 2 workers from apply to settled: %.0f s", time.Since(started).Seconds())
	})

	It("take labels, annotations and taints where they are", func(ctx context.Context) { propagates(ctx, c) })
	It("are deleted in the requested order, blocked by hooks and a budget", func(ctx context.Context) { drains(ctx, c) })

	if !everything {
		return
	}
	rolls(c)
	removes(c)
	heals(c)
}

// propagates changes fields that need no new VM, and expects the values in machines and nodes.
func propagates(ctx context.Context, c *bed.Cluster) {
	before := namesNow(ctx, c)
	change(ctx, c, func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Labels[label] = "a"
		md.Spec.Template.Annotations = map[string]string{annotation: "storage"}
		md.Spec.Template.Spec.Taints = []clusterv1.MachineTaint{{
			Key: taintKey, Value: "yes", Effect: corev1.TaintEffectPreferNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways,
		}}
	})
	Eventually(func(g Gomega, ctx context.Context) {
		own, err := workers(ctx, c)
		g.Expect(err).NotTo(HaveOccurred())
		for i := range own {
			marked(g, &own[i])
			g.Expect(own[i].Spec.Taints).To(ConsistOf(HaveField("Key", taintKey)))
			config := &bootstrapv1.NovaConfig{}
			g.Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: own[i].Spec.Bootstrap.ConfigRef.Name}, config)).To(Succeed())
			marked(g, config)
			n, err := node(ctx, c, own[i].Name)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(n.Labels).To(HaveKeyWithValue(label, "a"))
			g.Expect(n.Spec.Taints).To(ContainElement(corev1.Taint{Key: taintKey, Value: "yes", Effect: corev1.TaintEffectPreferNoSchedule}))
		}
		infra, err := b.ListInfra(ctx, hypervisor(c), "Machine", c.Namespace)
		g.Expect(err).NotTo(HaveOccurred())
		count := 0
		for _, m := range infra {
			if _, controlPlane := m.GetLabels()[clusterv1.MachineControlPlaneLabel]; !controlPlane {
				marked(g, m)
				count++
			}
		}
		g.Expect(count).To(Equal(len(own)))
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())

	By("taking them back")
	change(ctx, c, func(md *clusterv1.MachineDeployment) {
		delete(md.Spec.Template.Labels, label)
		md.Spec.Template.Annotations, md.Spec.Template.Spec.Taints = nil, nil
	})
	Eventually(func(g Gomega, ctx context.Context) {
		for _, name := range before {
			n, err := node(ctx, c, name)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(n.Labels).NotTo(HaveKey(label))
			g.Expect(n.Spec.Taints).NotTo(ContainElement(HaveField("Key", taintKey)))
		}
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
	awaitHealthy(ctx, c, reportTimeout)
	Expect(namesNow(ctx, c)).To(Equal(before), "no machine is replaced")
}

// marked expects an object to have the label and the annotation.
func marked(g Gomega, object client.Object) {
	GinkgoHelper()
	g.Expect(object.GetLabels()).To(HaveKeyWithValue(label, "a"), object.GetName())
	g.Expect(object.GetAnnotations()).To(HaveKeyWithValue(annotation, "storage"), object.GetName())
}

// drains removes one machine that a user chose, while all kinds of objects block it.
func drains(ctx context.Context, c *bed.Cluster) {
	_, err := b.DeployWorkload(ctx, *c)
	Expect(err).NotTo(HaveOccurred())
	By("protecting the workload so that no pod of it may go")
	tenant, err := b.TenantClient(ctx, c.Key())
	Expect(err).NotTo(HaveOccurred())
	budget := &policyv1.PodDisruptionBudget{}
	Expect(tenant.Get(ctx, client.ObjectKey{Namespace: "default", Name: "workload"}, budget)).To(Succeed())
	relaxed := budget.DeepCopy()
	budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(2))
	Expect(tenant.Patch(ctx, budget, client.MergeFrom(relaxed))).To(Succeed())
	pod := workloadPod(ctx, tenant)
	victim := pod.Spec.NodeName
	started := time.Now()

	By("naming the machine to go, with hooks on it")
	changeMachine(ctx, c, victim, func(m *clusterv1.Machine) {
		m.Annotations[clusterv1.DeleteMachineAnnotation] = ""
		m.Annotations[preDrain], m.Annotations[preTerminate] = "somebody", "somebody"
	})
	scale(ctx, c, 1)
	expectHeld(ctx, c, victim, clusterv1.MachineDeletingWaitingForPreDrainHookReason, preDrain)
	n, err := node(ctx, c, victim)
	Expect(err).NotTo(HaveOccurred())
	Expect(n.Spec.Unschedulable).To(BeFalse(), "nothing is drained before the hook is taken off")

	By("letting it drain, against the budget")
	changeMachine(ctx, c, victim, func(m *clusterv1.Machine) { delete(m.Annotations, preDrain) })
	expectHeld(ctx, c, victim, clusterv1.MachineDeletingDrainingNodeReason,
		pod.Namespace+"/"+pod.Name+": cannot evict pod as it would violate the pod's disruption budget")
	change(ctx, c, func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](1)
	})

	By("keeping its VM until the second hook is taken off")
	expectHeld(ctx, c, victim, clusterv1.MachineDeletingWaitingForPreTerminateHookReason, preTerminate)
	Expect(b.VMsOf(ctx, *c)).To(ContainElement(victim))
	changeMachine(ctx, c, victim, func(m *clusterv1.Machine) { delete(m.Annotations, preTerminate) })
	awaitHealthy(ctx, c, deleteTimeout)
	Expect(namesNow(ctx, c)).NotTo(ContainElement(victim), "the named machine is deleted")
	figuref("a machine with two hooks and a stuck budget: %.0f s", time.Since(started).Seconds())

	By("making all as it was")
	Expect(tenant.Get(ctx, client.ObjectKeyFromObject(budget), budget)).To(Succeed())
	strict := budget.DeepCopy()
	budget.Spec.MinAvailable = relaxed.Spec.MinAvailable
	Expect(tenant.Patch(ctx, budget, client.MergeFrom(strict))).To(Succeed())
}

// workloadPod is a pod of the workload that runs.
func workloadPod(ctx context.Context, tenant client.Client) *corev1.Pod {
	GinkgoHelper()
	pods := &corev1.PodList{}
	Expect(tenant.List(ctx, pods, client.InNamespace("default"), client.MatchingLabels{"app": "workload"})).To(Succeed())
	Expect(pods.Items).NotTo(BeEmpty())
	return &pods.Items[0]
}

// expectHeld expects the deletion of a machine to be blocked at a step, and its condition to name
// the cause.
func expectHeld(ctx context.Context, c *bed.Cluster, name, reason, waitsFor string) {
	GinkgoHelper()
	Eventually(conditionText).WithContext(ctx).WithArguments(c, name, clusterv1.MachineDeletingCondition).WithTimeout(reportTimeout).
		Should(And(HavePrefix(reason+": "), ContainSubstring(waitsFor)), func() string { return story(ctx, c) })
}
