package inplace

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

var _ = func() bool {
	for i, name := range harness.Hypervisors(everything) {
		Describe("Workers on "+name, Ordered, Label(name), func() { changes(name, 11+i) })
		if everything && i == 0 {
			// Nodes do the same on each hypervisor.
			Describe("Control planes on "+name, Ordered, Label(name), func() { controlPlaneChanges(name, 21) })
			Describe("The versions of control planes on "+name, Ordered, Label(name), func() { controlPlaneUpgrades(name, 22) })
			Describe("Workers of another version on "+name, Ordered, Label(name), func() { versionChanges(name, 31) })
		}
	}
	return true
}()

// Sizes of workers. Hosts show the CPUs and the memory of the computer that they run
// on, which has at least those.
const (
	smallCPUs, smallMemoryMiB = 1, 2048
	largeCPUs, largeMemoryMiB = 2, 3072
)

// identity has the properties that a replacement changes.
type identity struct {
	Machine, ProviderID, Node, Boot string
}

func changes(hypervisor string, address int) {
	c := &bed.Cluster{
		Name: "place-" + hypervisor, Namespace: "place-" + hypervisor, Hypervisor: hypervisor,
		ControlPlanes: 1, Workers: 2, Endpoint: "10.77.0." + strconv.Itoa(address),
	}
	var before []identity

	BeforeAll(func(ctx context.Context) {
		createWith(ctx, c, func(o *unstructured.Unstructured) {
			switch {
			case o.GetKind() == "NovaConfigTemplate":
				set(o, field{"Prefer", []string{"spec", "template", "spec", "rollout", "inPlace"}})
			case o.GetName() == c.Name+"-worker" && strings.HasSuffix(o.GetKind(), "MachineTemplate"):
				set(o, hardware(hypervisor, smallCPUs, smallMemoryMiB)...)
			}
		})
		Eventually(b.CheckCluster).WithContext(ctx).WithArguments(*c).WithTimeout(bootTimeout).Should(Succeed())
		before = identities(ctx, c)
	})

	It("have no other machine, Node or boot after a file and the kubelet have changed", func(ctx context.Context) {
		started := time.Now()
		move(ctx, c, "next", func(s *bootstrapv1.NovaConfigSpec) {
			s.Files = append(s.Files, bootstrapv1.File{Path: "/etc/nova-test/in-place", Content: "changed\n", Permissions: "0644"})
			s.Kubelet.ExtraArgs = []bootstrapv1.Arg{{Name: "max-pods", Value: ptr.To("77")}, {Name: "node-labels", Value: ptr.To("example.org/in-place=yes")}}
		})
		await(ctx, c)
		AddReportEntry("figure", fmt.Sprintf("a change of two workers in place: %.0f s", time.Since(started).Seconds()))
		Expect(identities(ctx, c)).To(Equal(before))
		for _, one := range before {
			out, err := b.Exec(ctx, one.Machine, "cat", "/etc/nova-test/in-place")
			Expect(err).NotTo(HaveOccurred())
			Expect(out).To(Equal("changed"))
			n := node(ctx, c, one.Machine)
			Expect(n.Status.Allocatable.Pods().Value()).To(BeEquivalentTo(77), "the kubelet runs with its new arguments")
			Expect(n.Labels).To(HaveKeyWithValue("example.org/in-place", "yes"))
			Expect(configured(n).Status).To(Equal(corev1.ConditionTrue))
		}
	})

	It("can read their own settings, and no others", func(ctx context.Context) {
		const get = "kubectl --kubeconfig /etc/kubernetes/kubelet.conf -n " + nodeconfig.SettingsNamespace + " get secret -o name "
		host := before[0].Machine
		Expect(b.Exec(ctx, host, "sh", "-c", get+nodeconfig.SettingsName(before[0].Machine))).To(ContainSubstring("secret/"))
		_, err := b.Exec(ctx, host, "sh", "-c", get+nodeconfig.SettingsName(before[1].Machine))
		Expect(err).To(HaveOccurred())
		_, err = b.Exec(ctx, host, "sh", "-c", get)
		Expect(err).To(HaveOccurred(), "nor a list")
	})

	if everything {
		It("get CPUs and memory while they run", func(ctx context.Context) {
			started := time.Now()
			growing(ctx, c, before, func() {
				deployment := group(ctx, c)
				patched := deployment.DeepCopy()
				patched.Spec.Template.Spec.InfrastructureRef.Name = largerTemplate(ctx, c, deployment.Spec.Template.Spec.InfrastructureRef)
				patched.Spec.Rollout.Strategy = oneByOne()
				Expect(b.Client.Patch(ctx, patched, client.MergeFrom(deployment))).To(Succeed())
			})
			await(ctx, c)
			AddReportEntry("figure", fmt.Sprintf("CPUs and memory of two workers in place: %.0f s", time.Since(started).Seconds()))
			Expect(identities(ctx, c)).To(Equal(before))
			expectAgents(ctx, c, before)
		})
	}

	var commands []string
	It("are neither changed nor replaced if a field needs other machines and the mode is Only", func(ctx context.Context) {
		move(ctx, c, "only", func(s *bootstrapv1.NovaConfigSpec) {
			s.Rollout.InPlace = bootstrapv1.InPlaceOnly
			commands, s.PreKubeadmCommands = s.PreKubeadmCommands, []string{"true"}
		})
		template := &bootstrapv1.NovaConfigTemplate{}
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-only"}, template)).To(Succeed())
			found := conditions.Get(template, bootstrapv1.InPlaceUpdatableCondition)
			g.Expect(found).NotTo(BeNil())
			g.Expect(found.Status).To(Equal(metav1.ConditionFalse))
			g.Expect(found.Message).To(ContainSubstring("spec.template.spec.preKubeadmCommands"))
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed())
		Consistently(identities).WithContext(ctx).WithArguments(c).WithTimeout(10 * time.Second).Should(Equal(before))
	})

	if !everything {
		return
	}

	It("report a change that failed, and are replaced when the Machine is deleted", func(ctx context.Context) {
		move(ctx, c, "broken", func(s *bootstrapv1.NovaConfigSpec) {
			s.Rollout.InPlace, s.PreKubeadmCommands = bootstrapv1.InPlacePrefer, commands
			s.Kubelet.ExtraArgs = []bootstrapv1.Arg{{Name: "no-such-argument", Value: ptr.To("1")}}
		})
		failed := clusterv1.Machine{}
		Eventually(func(g Gomega, ctx context.Context) {
			_, workers, err := b.Machines(ctx, *c)
			g.Expect(err).NotTo(HaveOccurred())
			at := slices.IndexFunc(workers, func(m clusterv1.Machine) bool {
				return strings.Contains(updating(m), "the kubelet does not start with these settings")
			})
			g.Expect(at).NotTo(BeNumerically("<", 0))
			failed = workers[at]
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
		move(ctx, c, "third", func(s *bootstrapv1.NovaConfigSpec) {
			s.Kubelet.ExtraArgs = []bootstrapv1.Arg{{Name: "max-pods", Value: ptr.To("78")}}
		})
		Expect(b.Client.Delete(ctx, &failed)).To(Succeed())
		await(ctx, c)
		kept := slices.DeleteFunc(slices.Clone(before), func(i identity) bool { return i.Machine == failed.Name })
		Expect(identities(ctx, c)).To(ContainElements(kept), "the other worker was not touched by the failure")
	})
}

// field is a field of an object, and its value.
type field struct {
	value any
	path  []string
}

// create creates the cluster with machines that can be changed in place: the object of
// this kind has these fields.
func create(ctx context.Context, c *bed.Cluster, kind string, fields ...field) {
	GinkgoHelper()
	found := 0
	createWith(ctx, c, func(o *unstructured.Unstructured) {
		if o.GetKind() == kind {
			found++
			set(o, fields...)
		}
	})
	Expect(found).To(Equal(1), "one "+kind)
}

// createWith creates the cluster with changed objects.
func createWith(ctx context.Context, c *bed.Cluster, change func(*unstructured.Unstructured)) {
	GinkgoHelper()
	objects, err := b.Generate(ctx, *c)
	Expect(err).NotTo(HaveOccurred())
	for _, o := range objects {
		change(o)
	}
	Expect(b.Credentials(ctx, *c)).To(Succeed())
	Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
}

func set(o *unstructured.Unstructured, fields ...field) {
	GinkgoHelper()
	for _, f := range fields {
		Expect(unstructured.SetNestedField(o.Object, f.value, f.path...)).To(Succeed())
	}
}

// hardware are the fields of a machine template whose VMs have these sizes, and can get
// more while they run.
func hardware(hypervisor string, cpus, memoryMiB int64) []field {
	at := func(name string) []string { return []string{"spec", "template", "spec", "hardware", name} }
	fields := []field{{cpus, at("cpus")}, {memoryMiB, at("memoryMiB")}}
	switch hypervisor {
	case bed.VSphere:
		fields = append(fields, field{true, at("cpuHotAdd")}, field{true, at("memoryHotAdd")})
	case bed.Proxmox:
		fields = append(fields, field{int64(largeCPUs), at("maxCPUs")}, field{true, at("memoryHotAdd")}, field{true, at("numa")})
	}
	return fields
}

// growing waits until the same VMs of machines have the large sizes.
func growing(ctx context.Context, c *bed.Cluster, machines []identity, grow func()) {
	GinkgoHelper()
	virtual, err := b.Hypervisor(c.Hypervisor)
	Expect(err).NotTo(HaveOccurred())
	larger := map[string]bed.Hardware{}
	for _, one := range machines {
		found, err := virtual.Hardware(ctx, one.Machine)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(And(HaveField("CPUs", BeEquivalentTo(smallCPUs)), HaveField("MemoryMiB", BeEquivalentTo(smallMemoryMiB))))
		found.CPUs, found.MemoryMiB = largeCPUs, largeMemoryMiB
		larger[one.Machine] = found
	}
	grow()
	Eventually(func(g Gomega, ctx context.Context) {
		for name, want := range larger {
			g.Expect(virtual.Hardware(ctx, name)).To(Equal(want), name)
		}
	}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
}

// expectAgents expects that the agents and kubelets of machines run.
func expectAgents(ctx context.Context, c *bed.Cluster, machines []identity) {
	GinkgoHelper()
	for _, one := range machines {
		Expect(configured(node(ctx, c, one.Machine)).Status).To(Equal(corev1.ConditionTrue))
		Expect(b.Exec(ctx, one.Machine, "systemctl", "is-active", "nova-host-agent", "kubelet")).To(Equal("active\nactive"))
	}
}

// largerTemplate copies a machine template, with the large sizes, and returns the name of
// the copy.
func largerTemplate(ctx context.Context, c *bed.Cluster, of clusterv1.ContractVersionedObjectReference) string {
	GinkgoHelper()
	template, err := external.GetObjectFromContractVersionedRef(ctx, b.Client, of, c.Namespace)
	Expect(err).NotTo(HaveOccurred())
	changed := &unstructured.Unstructured{Object: map[string]any{"spec": template.Object["spec"]}}
	changed.SetGroupVersionKind(template.GroupVersionKind())
	changed.SetNamespace(c.Namespace)
	changed.SetName(template.GetName() + "-larger")
	set(changed, hardware(c.Hypervisor, largeCPUs, largeMemoryMiB)...)
	Expect(b.Client.Create(ctx, changed)).To(Succeed())
	return changed.GetName()
}

// move lets the workers use a changed copy of their template.
func move(ctx context.Context, c *bed.Cluster, name string, change func(*bootstrapv1.NovaConfigSpec)) {
	GinkgoHelper()
	deployment := group(ctx, c)
	template := &bootstrapv1.NovaConfigTemplate{}
	key := client.ObjectKey{Namespace: c.Namespace, Name: deployment.Spec.Template.Spec.Bootstrap.ConfigRef.Name}
	Expect(b.Client.Get(ctx, key, template)).To(Succeed())
	changed := &bootstrapv1.NovaConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name + "-" + name}, Spec: *template.Spec.DeepCopy()}
	change(&changed.Spec.Template.Spec)
	Expect(b.Client.Create(ctx, changed)).To(Succeed())
	patched := deployment.DeepCopy()
	patched.Spec.Template.Spec.Bootstrap.ConfigRef.Name = changed.Name
	patched.Spec.Rollout.Strategy = oneByOne()
	Expect(b.Client.Patch(ctx, patched, client.MergeFrom(deployment))).To(Succeed())
}

// oneByOne changes one machine after another, and creates none.
func oneByOne() clusterv1.MachineDeploymentRolloutStrategy {
	return clusterv1.MachineDeploymentRolloutStrategy{
		Type: clusterv1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: clusterv1.MachineDeploymentRolloutStrategyRollingUpdate{
			MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1)),
		},
	}
}

func group(ctx context.Context, c *bed.Cluster) *clusterv1.MachineDeployment {
	GinkgoHelper()
	found := &clusterv1.MachineDeployment{}
	Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, found)).To(Succeed())
	return found
}

// await waits until all workers have the current template.
func await(ctx context.Context, c *bed.Cluster) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		deployment := group(ctx, c)
		g.Expect(deployment.Status.ObservedGeneration).To(Equal(deployment.Generation))
		g.Expect(ptr.Deref(deployment.Status.UpToDateReplicas, 0)).To(BeEquivalentTo(2))
		template := &bootstrapv1.NovaConfigTemplate{}
		g.Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: deployment.Spec.Template.Spec.Bootstrap.ConfigRef.Name}, template)).To(Succeed())
		_, workers, err := b.Machines(ctx, *c)
		g.Expect(err).NotTo(HaveOccurred())
		for i := range workers {
			// The status of the MachineDeployment may be that of the former MachineSet.
			config := &bootstrapv1.NovaConfig{}
			g.Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: workers[i].Spec.Bootstrap.ConfigRef.Name}, config)).To(Succeed())
			g.Expect(config.Spec).To(Equal(template.Spec.Template.Spec))
			g.Expect(workers[i].Annotations).NotTo(HaveKey(clusterv1.UpdateInProgressAnnotation))
		}
		g.Expect(b.CheckCluster(ctx, *c)).To(Succeed())
	}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
}

// story describes the state of the workers.
func story(ctx context.Context, c *bed.Cluster) string {
	out := &strings.Builder{}
	_, workers, err := b.Machines(ctx, *c)
	if err != nil {
		return err.Error()
	}
	for i := range workers {
		harness.PrintConditions(out, "Machine", &workers[i], workers[i].Name)
	}
	return out.String()
}

// updating is the message of a Machine about its update.
func updating(m clusterv1.Machine) string {
	if found := conditions.Get(&m, clusterv1.MachineUpdatingCondition); found != nil {
		return found.Message
	}
	return ""
}

// identities are those of the workers, by name.
func identities(ctx context.Context, c *bed.Cluster) []identity {
	GinkgoHelper()
	_, workers, err := b.Machines(ctx, *c)
	Expect(err).NotTo(HaveOccurred())
	return identitiesOf(ctx, c, workers)
}

func identitiesOf(ctx context.Context, c *bed.Cluster, machines []clusterv1.Machine) []identity {
	GinkgoHelper()
	var all []identity
	for i := range machines {
		n := node(ctx, c, machines[i].Name)
		all = append(all, identity{Machine: machines[i].Name, ProviderID: machines[i].Spec.ProviderID, Node: string(n.UID), Boot: n.Status.NodeInfo.BootID})
	}
	slices.SortFunc(all, func(a, b identity) int { return strings.Compare(a.Machine, b.Machine) })
	return all
}

// applying waits for a machine whose node applies its settings, and that was not seen
// before.
func applying(ctx context.Context, c *bed.Cluster, seen map[string]bool) (name string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		planes, workers, err := b.Machines(ctx, *c)
		g.Expect(err).NotTo(HaveOccurred())
		machines := slices.Concat(planes, workers)
		at := slices.IndexFunc(machines, func(m clusterv1.Machine) bool {
			return !seen[m.Name] && strings.Contains(updating(m), "the settings are being applied")
		})
		g.Expect(at).NotTo(BeNumerically("<", 0))
		name = machines[at].Name
	}).WithContext(ctx).WithTimeout(changeTimeout).WithPolling(200*time.Millisecond).Should(Succeed(), func() string { return story(ctx, c) })
	seen[name] = true
	return name
}

func node(ctx context.Context, c *bed.Cluster, name string) *corev1.Node {
	GinkgoHelper()
	workload, err := b.TenantClient(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name})
	Expect(err).NotTo(HaveOccurred())
	found := &corev1.Node{}
	Expect(workload.Get(ctx, client.ObjectKey{Name: name}, found)).To(Succeed())
	return found
}

func configured(n *corev1.Node) corev1.NodeCondition {
	for _, condition := range n.Status.Conditions {
		if condition.Type == nodeconfig.ConfiguredCondition {
			return condition
		}
	}
	return corev1.NodeCondition{}
}
