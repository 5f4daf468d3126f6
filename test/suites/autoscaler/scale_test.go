package autoscaler

import (
	"context"
	"fmt"
	"maps"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/autoscaler"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// scene is a workload cluster without workers and its autoscaler.
type scene struct {
	cluster bed.Cluster
	tenant  client.Client
	driver  *autoscaler.Driver
}

var _ = Describe("Workers of a role", func() {
	for at, hypervisor := range hypervisors() {
		It("scale from zero and back on "+hypervisor, Label(hypervisor), func(ctx context.Context) {
			began := time.Now()
			s := &scene{cluster: bed.Cluster{
				Name: "auto-" + hypervisor, Namespace: "auto-" + hypervisor, Hypervisor: hypervisor,
				ControlPlanes: 1, Endpoint: fmt.Sprintf("10.77.0.%d", 60+at),
			}}
			s.create(ctx)
			s.followsAPod(ctx)
			s.goesBack(ctx)
			AddReportEntry("figure: from nothing to nothing, in seconds", int(time.Since(began).Seconds()))
		})
	}
})

// create creates the workload cluster of the flavor. Its workers get the role infra, a taint and a
// label.
func (s *scene) create(ctx context.Context) {
	GinkgoHelper()
	c := s.cluster
	variables, err := b.Variables(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	maps.Copy(variables, map[string]string{
		"CLUSTER_NAME": c.Name, "NAMESPACE": c.Namespace, "KUBERNETES_VERSION": bed.KubernetesVersion,
		"CONTROL_PLANE_MACHINE_COUNT": "1", "WORKER_MACHINE_COUNT": "0",
		"WORKER_MACHINE_MIN_COUNT": "0", "WORKER_MACHINE_MAX_COUNT": "2",
	})
	h, err := b.Hypervisor(c.Hypervisor)
	Expect(err).NotTo(HaveOccurred())
	manifest, err := autoscaler.Flavor(ctx, GinkgoWriter, repository, h.Facts().Provider, variables)
	Expect(err).NotTo(HaveOccurred())
	objects, err := bed.Suit(manifest, c)
	Expect(err).NotTo(HaveOccurred())
	for _, o := range objects {
		if o.GetKind() != "NovaConfigTemplate" {
			continue
		}
		spec, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
		Expect(err).NotTo(HaveOccurred())
		spec["roles"] = []any{"infra"}
		spec["taints"] = []any{map[string]any{"key": "example.com/kind", "value": "batch", "effect": "NoExecute"}}
		spec["kubelet"] = map[string]any{"extraArgs": []any{map[string]any{"name": "node-labels", "value": "example.com/kind=batch"}}}
		Expect(unstructured.SetNestedMap(o.Object, spec, "spec", "template", "spec")).To(Succeed())
	}
	Expect(b.Credentials(ctx, c)).To(Succeed())
	Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
	Eventually(func(g Gomega) {
		tenant, err := b.TenantClient(ctx, c.Key())
		g.Expect(err).NotTo(HaveOccurred())
		nodes := &corev1.NodeList{}
		g.Expect(tenant.List(ctx, nodes)).To(Succeed())
		g.Expect(nodes.Items).To(HaveLen(1))
		s.tenant = tenant
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
	s.driver, err = autoscaler.New(ctx, autoscaler.As(b.Config, c.Namespace, c.Name+"-autoscaler"), c.Namespace, c.Name)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.driver.Close)
}

// group waits for the only node group.
func (s *scene) group(ctx context.Context) *autoscaler.Group {
	GinkgoHelper()
	var group *autoscaler.Group
	Eventually(func(g Gomega) {
		groups, err := s.driver.Groups(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(groups).To(HaveLen(1))
		group = groups[0]
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
	return group
}

// instances polls the states of all instances.
func (s *scene) instances(ctx context.Context) func(Gomega) []autoscaler.Instance {
	return func(g Gomega) []autoscaler.Instance {
		groups, err := s.driver.Groups(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(groups).To(HaveLen(1))
		found, err := groups[0].Instances(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		return found
	}
}

// pod is one that only the workers can take. Its image is on no host, as it is
// enough that it is placed.
func pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "pending"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{
				"node-role.kubernetes.io/infra": "", "example.com/kind": "batch", corev1.LabelArchStable: "amd64",
			},
			Tolerations: []corev1.Toleration{
				{Key: "node-role.kubernetes.io/infra", Operator: corev1.TolerationOpExists},
				{Key: "example.com/kind", Value: "batch"},
			},
			Containers: []corev1.Container{{
				Name: "none", Image: "none.example/none:v1", ImagePullPolicy: corev1.PullNever,
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
			}},
		},
	}
}

// followsAPod scales up for an unschedulable pod that fits the predicted node, and compares the new
// nodes with the prediction.
func (s *scene) followsAPod(ctx context.Context) {
	GinkgoHelper()
	group := s.group(ctx)
	Expect(group.Size(ctx)).To(BeZero())
	Expect(s.instances(ctx)(Default)).To(BeEmpty())
	var template *corev1.Node
	taints := ConsistOf(
		corev1.Taint{Key: "node-role.kubernetes.io/infra", Effect: corev1.TaintEffectNoSchedule},
		corev1.Taint{Key: "example.com/kind", Value: "batch", Effect: corev1.TaintEffectNoExecute},
	)
	Eventually(func(g Gomega) {
		var err error
		template, err = s.group(ctx).Template(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(template.Spec.Taints).To(taints)
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
	wanted := pod()
	for key, value := range wanted.Spec.NodeSelector {
		Expect(template.Labels).To(HaveKeyWithValue(key, value))
	}
	Expect(template.Status.Capacity.Cpu().Value()).To(BeEquivalentTo(4))
	Expect(template.Status.Capacity.Memory().String()).To(Equal("8Gi"))

	By("having a pod that nothing takes")
	Eventually(func() error { return client.IgnoreAlreadyExists(s.tenant.Create(ctx, wanted.DeepCopy())) }).
		WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), "once its service account is there")
	placed := func(g Gomega) string {
		found := &corev1.Pod{}
		g.Expect(s.tenant.Get(ctx, client.ObjectKeyFromObject(wanted), found)).To(Succeed())
		return found.Spec.NodeName
	}
	Eventually(func(g Gomega) {
		found := &corev1.Pod{}
		g.Expect(s.tenant.Get(ctx, client.ObjectKeyFromObject(wanted), found)).To(Succeed())
		g.Expect(found.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.PodScheduled), HaveField("Reason", corev1.PodReasonUnschedulable))))
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())

	By("scaling up")
	Expect(group.Increase(ctx, 2)).To(Succeed())
	Eventually(s.instances(ctx)).WithContext(ctx).WithTimeout(bootTimeout).Should(HaveEach(HaveField("State", autoscaler.Creating)))
	running := HaveField("State", autoscaler.Running)
	Eventually(s.instances(ctx)).WithContext(ctx).WithTimeout(bootTimeout).Should(ConsistOf(running, running))
	Eventually(placed).WithContext(ctx).WithTimeout(bootTimeout).ShouldNot(BeEmpty())

	By("comparing the nodes with the template")
	Eventually(func(g Gomega) {
		for _, node := range s.workers(g, ctx) {
			g.Expect(node.Spec.Taints).To(taints, "the initial taint is removed, and the node is ready")
			for key, value := range template.Labels {
				if key != corev1.LabelHostname {
					g.Expect(node.Labels).To(HaveKeyWithValue(key, value))
				}
			}
			g.Expect(node.Status.Capacity.Pods().Value()).To(Equal(template.Status.Capacity.Pods().Value()))
			g.Expect(node.Status.NodeInfo.Architecture).To(Equal(template.Status.NodeInfo.Architecture))
			g.Expect(node.Status.NodeInfo.OperatingSystem).To(Equal(template.Status.NodeInfo.OperatingSystem))
			owner, found, err := s.driver.GroupOf(ctx, &node)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(BeTrue())
			g.Expect(owner.ID()).To(Equal(group.ID()))
			known, err := s.driver.Known(ctx, &node)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(known).To(BeTrue())
		}
		instances := s.instances(ctx)(g)
		for _, node := range s.workers(g, ctx) {
			g.Expect(instances).To(ContainElement(HaveField("ID", node.Spec.ProviderID)), "Machine and Node have the same ID")
		}
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
}

// workers are the nodes that are not of the control plane.
func (s *scene) workers(g Gomega, ctx context.Context) []corev1.Node { //nolint:revive // Gomega's own order
	nodes := &corev1.NodeList{}
	g.Expect(s.tenant.List(ctx, nodes)).To(Succeed())
	var found []corev1.Node
	for i := range nodes.Items {
		if _, controlPlane := nodes.Items[i].Labels["node-role.kubernetes.io/control-plane"]; !controlPlane {
			found = append(found, nodes.Items[i])
		}
	}
	return found
}

// goesBack takes a certain node away, then the last one.
func (s *scene) goesBack(ctx context.Context) {
	GinkgoHelper()
	nodes := s.workers(Default, ctx)
	Expect(nodes).To(HaveLen(2))
	group := s.group(ctx)
	Expect(group.RollingOut(ctx)).To(BeFalse())
	Expect(group.Decrease(ctx, 1)).To(MatchError(ContainSubstring("nothing to decrease")))
	for i, node := range nodes {
		By("taking " + node.Name + " away")
		Expect(group.Delete(ctx, node.Spec.ProviderID)).To(Succeed())
		left := len(nodes) - i - 1
		Eventually(func(g Gomega) {
			g.Expect(s.workers(g, ctx)).To(HaveLen(left))
			g.Expect(s.workers(g, ctx)).NotTo(ContainElement(HaveField("Name", node.Name)), "the marked machine is deleted")
			machines := &clusterv1.MachineList{}
			g.Expect(b.Client.List(ctx, machines, client.InNamespace(s.cluster.Namespace),
				client.HasLabels{clusterv1.MachineDeploymentNameLabel})).To(Succeed())
			g.Expect(machines.Items).To(HaveLen(left))
		}).WithContext(ctx).WithTimeout(deleteTimeout).Should(Succeed())
	}
	Expect(s.group(ctx).Size(ctx)).To(BeZero())
	Expect(b.VMsOf(ctx, s.cluster)).To(HaveLen(1), "only the control plane is left")
}
