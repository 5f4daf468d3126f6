package autoscaler_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/nodegroup"
	"github.com/nova-platform/cluster-api-provider-nova/test/autoscaler"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

const (
	worker   = clusterName + "-worker"
	capacity = "capacity.cluster-autoscaler.kubernetes.io/"
)

// resources writes quantities down, so that they can be compared.
func resources(node *corev1.Node) map[string]string {
	found := map[string]string{}
	for name, quantity := range node.Status.Capacity {
		found[string(name)] = quantity.String()
	}
	return found
}

// awaitTemplate waits until a new node of a group would be as it should.
func (r *rig) awaitTemplate(ctx context.Context, name string, check func(g Gomega, node *corev1.Node)) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		node, err := r.group(ctx, name).Template(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		check(g, node)
	}).Should(Succeed())
}

var _ = Describe("cluster-autoscaler", func() {
	for _, p := range platforms() {
		Context("on "+p.name, func() {
			It("knows the size of a node before it exists", func(ctx SpecContext) { tellsNodes(ctx, newRig(ctx, p)) })
			It("scales from zero, distinguishes instances and chooses the machine to delete", func(ctx SpecContext) { scales(ctx, newRig(ctx, p)) })
		})
	}

	It("can be added to a cluster that is there", canBeAdded)
	It("ignores other machine sets", func(ctx SpecContext) { leavesAlone(ctx, newRig(ctx, platforms()[0])) })
	It("may do nothing else", func(ctx SpecContext) { mayNothingElse(ctx, newRig(ctx, platforms()[0])) })
})

// canBeAdded lets the API server judge the manifest alone, by strict rules and
// those for restricted pods.
func canBeAdded(ctx SpecContext) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "alone-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	Expect(apiServer.Client.Create(ctx, namespace)).To(Succeed())
	manifest, err := autoscaler.Generate(ctx, GinkgoWriter, autoscaler.Alone(), map[string]string{
		"CLUSTER_NAME": clusterName, "NAMESPACE": namespace.Name, "CLUSTER_AUTOSCALER_IMAGE": "registry.example/autoscaler:v1",
	})
	Expect(err).NotTo(HaveOccurred())
	objects, err := bed.Suit(manifest, bed.Cluster{})
	Expect(err).NotTo(HaveOccurred())
	Expect(objects).To(HaveLen(4))
	for _, o := range objects {
		Expect(apiServer.Client.Create(ctx, o, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed(), o.GetKind())
	}
	deployment := &appsv1.Deployment{}
	Expect(apiServer.Client.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: clusterName + "-autoscaler"}, deployment)).To(Succeed())
	spec := deployment.Spec.Template.Spec
	Expect(spec.Containers[0].Image).To(Equal("registry.example/autoscaler:v1"))
	Expect(spec.Containers[0].Args).To(ContainElements(
		"--node-group-auto-discovery=clusterapi:namespace="+namespace.Name+",clusterName="+clusterName, "--kubeconfig=/tenant/value"))
	Expect(spec.Volumes).To(ConsistOf(HaveField("Secret.SecretName", clusterName+"-kubeconfig")))

	By("letting its pod in where only restricted ones may")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "pod"}, Spec: spec}
	Expect(apiServer.Client.Create(ctx, pod, client.DryRunAll)).To(Succeed())
	pod.Spec.Containers[0].SecurityContext = nil
	Expect(apiServer.Client.Create(ctx, pod, client.DryRunAll)).To(MatchError(ContainSubstring("violates PodSecurity")), "the rule is in force")
}

func tellsNodes(ctx context.Context, r *rig) {
	g := r.group(ctx, worker)
	Expect(g.Min).To(BeEquivalentTo(0))
	Expect(g.Max).To(BeEquivalentTo(3))
	r.awaitTemplate(ctx, worker, func(g Gomega, node *corev1.Node) {
		g.Expect(resources(node)).To(Equal(map[string]string{"cpu": "4", "memory": "8Gi", "ephemeral-storage": "20Gi", "pods": "110"}))
		g.Expect(node.Status.NodeInfo).To(Equal(corev1.NodeSystemInfo{Architecture: "amd64", OperatingSystem: "linux"}))
		g.Expect(node.Labels).To(And(HaveKeyWithValue(corev1.LabelArchStable, "amd64"), HaveKeyWithValue(corev1.LabelOSStable, "linux"),
			HaveKeyWithValue("node-role.kubernetes.io/worker", "")))
		g.Expect(node.Spec.Taints).To(BeEmpty(), "the taint that a worker starts with does not stay")
	})

	By("adding a pool of a role, with taints, labels and hardware of its own")
	r.pool(ctx, "special", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{
		Roles:  []bootstrapv1.NodeRole{bootstrapv1.NodeRoleInfra},
		Taints: []bootstrapv1.Taint{{Key: "example.com/gpu", Value: "a100", Effect: "NoExecute"}},
		Kubelet: bootstrapv1.KubeletSpec{ExtraArgs: []bootstrapv1.Arg{
			{Name: "node-labels", Value: ptr.To("example.com/pool=special")}, {Name: "max-pods", Value: ptr.To("60")},
		}},
	}}, func(infra *unstructured.Unstructured) {
		hardware := map[string]any{"memoryMiB": int64(65536), "cpus": int64(16)}
		if r.platform.name == bed.VSphere {
			hardware["vgpuProfiles"] = []any{"grid_a100-40c", "grid_a100-40c"}
		}
		Expect(unstructured.SetNestedMap(infra.Object, hardware, "spec", "template", "spec", "hardware")).To(Succeed())
	})
	want := map[string]string{"cpu": "16", "memory": "64Gi", "ephemeral-storage": "20Gi", "pods": "60"}
	if r.platform.name == bed.VSphere {
		want["nvidia.com/gpu"] = "2"
	}
	infraTaint := corev1.Taint{Key: "node-role.kubernetes.io/infra", Effect: corev1.TaintEffectNoSchedule}
	own := corev1.Taint{Key: "example.com/gpu", Value: "a100", Effect: corev1.TaintEffectNoExecute}
	r.awaitTemplate(ctx, "special", func(g Gomega, node *corev1.Node) {
		g.Expect(resources(node)).To(Equal(want))
		g.Expect(node.Labels).To(And(HaveKeyWithValue("node-role.kubernetes.io/infra", ""), HaveKeyWithValue("example.com/pool", "special")))
		g.Expect(node.Spec.Taints).To(ConsistOf(infraTaint, own))
	})

	By("going over to another template")
	Expect(r.Create(ctx, &bootstrapv1.NovaConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "other"}, Spec: bootstrapv1.NovaConfigTemplateSpec{
		Template: bootstrapv1.NovaConfigTemplateResource{Spec: bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{Roles: []bootstrapv1.NodeRole{"ingress"}}}},
	}})).To(Succeed())
	r.change(ctx, "special", func(d *clusterv1.MachineDeployment) {
		d.Spec.Template.Spec.Bootstrap.ConfigRef.Name, d.Spec.Template.Spec.FailureDomain = "other", "rack-1"
	})
	want["pods"] = "110"
	r.awaitTemplate(ctx, "special", func(g Gomega, node *corev1.Node) {
		g.Expect(resources(node)).To(Equal(want))
		g.Expect(node.Labels).To(And(HaveKey("node-role.kubernetes.io/ingress"), HaveKeyWithValue(corev1.LabelTopologyZone, "rack-1"), Not(HaveKey("example.com/pool"))))
		g.Expect(node.Spec.Taints).To(BeEmpty())
	})

	By("letting a user say otherwise, who is right")
	r.change(ctx, "special", func(d *clusterv1.MachineDeployment) {
		d.Annotations[capacity+"cpu"], d.Annotations[capacity+"maxPods"] = "2", "30"
		d.Annotations[capacity+"taints"] = "mine=1:NoSchedule"
		d.Annotations[capacity+"gpu-type"], d.Annotations[capacity+"gpu-count"] = "example.com/npu", "4"
	})
	want["cpu"], want["pods"], want["example.com/npu"] = "2", "30", "4"
	matches := func(g Gomega, node *corev1.Node) {
		g.Expect(resources(node)).To(Equal(want))
		g.Expect(node.Spec.Taints).To(ConsistOf(corev1.Taint{Key: "mine", Value: "1", Effect: corev1.TaintEffectNoSchedule}))
	}
	r.awaitTemplate(ctx, "special", matches)
	r.change(ctx, "special", func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "special" })
	r.awaitTemplate(ctx, "special", func(g Gomega, node *corev1.Node) {
		g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/infra"))
		matches(g, node)
	})
}

// machine creates a Machine of the workers with the owners that Cluster API
// gives it.
func (r *rig) machine(ctx context.Context, set *clusterv1.MachineSet, name string) *clusterv1.Machine {
	GinkgoHelper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.namespace, Name: name,
		Labels:          map[string]string{clusterv1.ClusterNameLabel: clusterName, clusterv1.MachineDeploymentNameLabel: worker},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet"))},
		Finalizers:      []string{"example.com/held"},
	}, Spec: set.Spec.Template.Spec}
	Expect(r.Create(ctx, m)).To(Succeed())
	return m
}

// set creates the MachineSet of the workers.
func (r *rig) set(ctx context.Context, name, revision string, replicas int32) *clusterv1.MachineSet {
	GinkgoHelper()
	d := r.deployment(ctx, worker)
	s := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.namespace, Name: name,
		Labels:          map[string]string{clusterv1.ClusterNameLabel: clusterName, clusterv1.MachineDeploymentNameLabel: worker},
		Annotations:     map[string]string{clusterv1.RevisionAnnotation: revision},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, clusterv1.GroupVersion.WithKind("MachineDeployment"))},
	}, Spec: clusterv1.MachineSetSpec{ClusterName: clusterName, Replicas: &replicas, Selector: d.Spec.Selector, Template: d.Spec.Template}}
	Expect(r.Create(ctx, s)).To(Succeed())
	return s
}

// join makes a Node for a Machine, as a kubelet and Cluster API do.
func (r *rig) join(ctx context.Context, m *clusterv1.Machine, providerID string) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        r.namespace + "-" + m.Name,
		Annotations: map[string]string{clusterv1.MachineAnnotation: m.Name, clusterv1.ClusterNamespaceAnnotation: m.Namespace},
	}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	Expect(r.Create(ctx, node)).To(Succeed())
	before := m.DeepCopy()
	m.Spec.ProviderID = providerID
	Expect(r.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	before = m.DeepCopy()
	m.Status.NodeRef.Name = node.Name
	Expect(r.Status().Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
	return node
}

func (r *rig) replicas(ctx context.Context) func() *int32 {
	return func() *int32 { return r.deployment(ctx, worker).Spec.Replicas }
}

func scales(ctx context.Context, r *rig) {
	g := r.group(ctx, worker)
	Expect(g.Size(ctx)).To(BeZero())
	Expect(g.Increase(ctx, 2)).To(Succeed())
	Expect(r.replicas(ctx)()).To(HaveValue(BeEquivalentTo(2)))
	Expect(g.Increase(ctx, 2)).To(MatchError(ContainSubstring("not between 0 and 3")))

	By("distinguishing an instance that boots, one that runs and one that is deleted")
	set := r.set(ctx, "workers-1", "1", 2)
	boots, runs, goes := r.machine(ctx, set, "boots"), r.machine(ctx, set, "runs"), r.machine(ctx, set, "goes")
	id := "scheme://6f1a0c2e-" + r.namespace
	node := r.join(ctx, runs, id)
	Expect(r.Delete(ctx, goes)).To(Succeed())
	Eventually(func() ([]autoscaler.Instance, error) { return r.group(ctx, worker).Instances(ctx) }).Should(ConsistOf(
		autoscaler.Instance{ID: "pending-machine-" + r.namespace + "_boots", State: autoscaler.Creating},
		autoscaler.Instance{ID: id, State: autoscaler.Running},
		autoscaler.Instance{ID: "deleting-machine-" + r.namespace + "_goes", State: autoscaler.Deleting},
	))
	of, found, err := r.driver.GroupOf(ctx, node)
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(BeTrue())
	Expect(of.ID()).To(Equal(g.ID()))
	Expect(r.driver.Known(ctx, node)).To(BeTrue())

	By("holding still while it is rolled out")
	Expect(g.RollingOut(ctx)).To(BeFalse())
	newer := r.set(ctx, "workers-2", "2", 0)
	Eventually(func() (bool, error) { return g.RollingOut(ctx) }).Should(BeTrue())
	Expect(r.Delete(ctx, newer)).To(Succeed())
	Eventually(func() (bool, error) { return g.RollingOut(ctx) }).Should(BeFalse())

	By("deleting machines that never became nodes, and no node")
	Expect(g.Decrease(ctx, 2)).To(MatchError(ContainSubstring("has 1 nodes")))
	Expect(g.Delete(ctx, "pending-machine-"+r.namespace+"_boots")).To(Succeed())
	marked := func(m *clusterv1.Machine) func() (map[string]string, error) {
		return func() (map[string]string, error) {
			err := r.Get(ctx, client.ObjectKeyFromObject(m), m)
			return m.Annotations, err
		}
	}
	Expect(marked(boots)()).To(HaveKey(clusterv1.DeleteMachineAnnotation))
	Expect(marked(runs)()).NotTo(HaveKey(clusterv1.DeleteMachineAnnotation))

	By("going back to zero")
	Expect(g.Delete(ctx, node.Spec.ProviderID)).To(Succeed())
	Expect(marked(runs)()).To(HaveKey(clusterv1.DeleteMachineAnnotation))
	Expect(r.replicas(ctx)()).To(HaveValue(BeZero()))
	Expect(g.Delete(ctx, node.Spec.ProviderID)).To(MatchError(ContainSubstring("leaves less than 0")))
	Eventually(r.ids(ctx)).Should(ConsistOf(g.ID()), "from zero it can be scaled again")
}

func leavesAlone(ctx context.Context, r *rig) {
	group := r.group(ctx, worker).ID()
	annotated := And(HaveKey(nodegroup.LabelsAnnotation), HaveKey(nodegroup.WrittenAnnotation))
	annotations := func(name string) func() map[string]string {
		return func() map[string]string { return r.deployment(ctx, name).Annotations }
	}
	Eventually(annotations(worker)).Should(annotated)

	By("pausing a group")
	r.change(ctx, worker, func(d *clusterv1.MachineDeployment) { d.Annotations[clusterv1.PausedAnnotation] = "" })
	Eventually(r.ids(ctx)).Should(BeEmpty())
	r.change(ctx, worker, func(d *clusterv1.MachineDeployment) { delete(d.Annotations, clusterv1.PausedAnnotation) })
	Eventually(r.ids(ctx)).Should(ConsistOf(group))

	By("having one of another cluster beside it, and one without bounds")
	r.pool(ctx, "foreign", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{Roles: []bootstrapv1.NodeRole{"worker"}}}, func(*unstructured.Unstructured) {})
	Eventually(r.ids(ctx)).Should(HaveLen(2))
	d := r.deployment(ctx, "foreign")
	Expect(r.Delete(ctx, d)).To(Succeed())
	Eventually(r.ids(ctx)).Should(ConsistOf(group))
	for name, change := range map[string]func(*clusterv1.MachineDeployment){
		"other": func(d *clusterv1.MachineDeployment) {
			d.Spec.ClusterName, d.Spec.Template.Spec.ClusterName = "other", "other"
		},
		"fixed":   func(d *clusterv1.MachineDeployment) { d.Annotations = nil },
		"unsized": func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.InfrastructureRef.Name = "none" },
	} {
		more := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}, Spec: *d.Spec.DeepCopy()}
		more.Annotations = map[string]string{clusterv1.AutoscalerMinSizeAnnotation: "0", clusterv1.AutoscalerMaxSizeAnnotation: "2"}
		more.Labels = map[string]string{clusterv1.ClusterNameLabel: clusterName}
		change(more)
		Expect(r.Create(ctx, more)).To(Succeed())
	}
	Eventually(annotations("unsized")).Should(annotated)
	Expect(r.ids(ctx)()).To(ConsistOf(group))
	Expect(annotations("fixed")()).To(BeEmpty(), "objects that are not node groups are not annotated")

	By("taking the bounds away: nothing of ours stays")
	r.change(ctx, worker, func(d *clusterv1.MachineDeployment) {
		delete(d.Annotations, clusterv1.AutoscalerMinSizeAnnotation)
		delete(d.Annotations, clusterv1.AutoscalerMaxSizeAnnotation)
	})
	Eventually(r.ids(ctx)).Should(BeEmpty())
	Eventually(annotations(worker)).Should(BeEmpty())
}

func mayNothingElse(ctx context.Context, r *rig) {
	account, err := client.New(autoscaler.As(apiServer.Config, r.namespace, clusterName+"-autoscaler"), client.Options{Scheme: apiServer.Scheme})
	Expect(err).NotTo(HaveOccurred())
	refused := WithTransform(apierrors.IsForbidden, BeTrue())
	d := r.deployment(ctx, worker)
	before := d.DeepCopy()
	d.Spec.Paused = ptr.To(true)
	Expect(account.Patch(ctx, d, client.MergeFrom(before))).To(refused, "changing a MachineDeployment")
	Expect(account.Delete(ctx, before)).To(refused, "deleting a MachineDeployment")
	Expect(account.List(ctx, &corev1.SecretList{}, client.InNamespace(r.namespace))).To(refused, "reading Secrets")
	Expect(account.List(ctx, &clusterv1.MachineList{}, client.InNamespace("default"))).To(refused, "looking into another namespace")
	Expect(account.List(ctx, &bootstrapv1.NovaConfigTemplateList{}, client.InNamespace(r.namespace))).To(refused, "reading bootstrap configuration")
	Expect(account.DeleteAllOf(ctx, &clusterv1.Machine{}, client.InNamespace(r.namespace))).To(refused, "deleting Machines")

	By("missing a rule, which the autoscaler itself would wait for without a word")
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: clusterName + "-autoscaler"}}
	Expect(r.Delete(ctx, role)).To(Succeed())
	Eventually(func() error {
		return account.List(ctx, &clusterv1.MachineList{}, client.InNamespace(r.namespace))
	}).Should(refused)
}
