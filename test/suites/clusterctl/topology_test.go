package clusterctl

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// classes are the hypervisors whose class is tested: the objects of each class are also tested
// without a management cluster.
func classes() []string {
	if everything {
		return bed.Hypervisors()
	}
	return []string{bed.VSphere}
}

// classed is a cluster that a ClusterClass makes.
func classed(hypervisor string) bed.Cluster {
	c := tenant(hypervisor)
	c.Name, c.Namespace, c.Workers = "class-"+hypervisor, "class-"+hypervisor, 1
	c.Endpoint = address(hypervisor, 21)
	return c
}

// reconciled reports whether the objects match the topology.
func reconciled(ctx context.Context, c bed.Cluster) (string, error) {
	cluster := &clusterv1.Cluster{}
	if err := one.Client.Get(ctx, c.Key(), cluster); err != nil {
		return "", err
	}
	condition := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)
	if condition == nil || condition.ObservedGeneration != cluster.Generation {
		return "not reported yet", nil
	}
	return string(condition.Status) + " " + condition.Reason + " " + condition.Message, nil
}

// change changes a Cluster, first as a server-side dry run.
func change(ctx context.Context, c bed.Cluster, mutate func(*clusterv1.Cluster)) {
	GinkgoHelper()
	for _, options := range [][]client.UpdateOption{{client.DryRunAll}, nil} {
		Eventually(func(g Gomega, ctx context.Context) {
			cluster := &clusterv1.Cluster{}
			g.Expect(one.Client.Get(ctx, c.Key(), cluster)).To(Succeed())
			mutate(cluster)
			g.Expect(one.Client.Update(ctx, cluster, options...)).To(Succeed())
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed())
	}
}

// infraMachines are the machines of a cluster as its hypervisor's provider has
// them.
func infraMachines(ctx context.Context, in *bed.Empty, c bed.Cluster) ([]unstructured.Unstructured, error) {
	h, err := b.Hypervisor(c.Hypervisor)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{
		Group: clusterv1.GroupVersionInfrastructure.Group, Version: clusterv1.GroupVersionInfrastructure.Version,
		Kind: h.Facts().Kinds + "MachineList",
	})
	err = in.Client.List(ctx, list, client.InNamespace(c.Namespace))
	return list.Items, err
}

// sizes are the numbers of processors of all machines of a cluster.
func sizes(ctx context.Context, c bed.Cluster) ([]int64, error) {
	machines, err := infraMachines(ctx, one, c)
	if err != nil {
		return nil, err
	}
	var found []int64
	for i := range machines {
		cpus, _, err := unstructured.NestedInt64(machines[i].Object, "spec", "hardware", "cpus")
		if err != nil {
			return nil, err
		}
		found = append(found, cpus)
	}
	return found, nil
}

// nodes is how many nodes of a cluster are ready.
func nodes(ctx context.Context, c bed.Cluster) (int, error) {
	names, err := one.ReadyNodes(ctx, c)
	return len(names), err
}

// makesClustersOfClasses makes a cluster of each class, changes it, and moves
// it to another class.
func makesClustersOfClasses(ctx context.Context, hypervisor string) {
	c := classed(hypervisor)
	Expect(one.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}})).To(Succeed())
	Expect(credentials(ctx, c)).To(Succeed())
	before, err := creations(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	objects, err := bed.Suit([]byte(generate(ctx, c, "topology", nil)), c)
	Expect(err).NotTo(HaveOccurred())
	Expect(kinds(objects)).To(ContainElement("ClusterClass"), "clusterctl adds the class where it is not there")
	Eventually(func() error { return bed.Apply(ctx, one.Client, objects...) }).WithTimeout(changeTimeout).Should(Succeed())
	Eventually(reconciled).WithContext(ctx).WithArguments(c).WithTimeout(changeTimeout).Should(HavePrefix("True"))
	Eventually(sizes).WithContext(ctx).WithArguments(c).WithTimeout(changeTimeout).Should(ConsistOf(int64(4), int64(4)))

	if everything {
		Eventually(nodes).WithContext(ctx).WithArguments(c).WithTimeout(bootTimeout).Should(Equal(2))
	}

	By("giving other nodes a role, and workers another size")
	change(ctx, c, func(cluster *clusterv1.Cluster) {
		workers := cluster.Spec.Topology.Workers.MachineDeployments
		one := int32(1)
		for i := range workers {
			switch workers[i].Class {
			case "infra":
				workers[i].Replicas = &one
			case "worker":
				workers[i].Variables.Overrides = []clusterv1.ClusterVariable{{
					Name: "nodeSize", Value: apiextensionsv1.JSON{Raw: []byte(`{"cpus":6,"memoryMiB":4096}`)},
				}}
			}
		}
	})
	Eventually(reconciled).WithContext(ctx).WithArguments(c).WithTimeout(changeTimeout).Should(HavePrefix("True"))
	Eventually(sizes).WithContext(ctx).WithArguments(c).WithTimeout(changeTimeout).Should(
		ContainElements(int64(4), int64(4), int64(6)), "a worker of the new size is made beside the old one")

	By("moving it to another class with the same settings")
	Expect(another(ctx, objects)).To(Succeed())
	// One control plane machine, a worker of each size, a node for infra.
	Eventually(creations).WithContext(ctx).WithArguments(c).WithTimeout(changeTimeout).Should(Equal(before + 4))
	change(ctx, c, func(cluster *clusterv1.Cluster) { cluster.Spec.Topology.ClassRef.Name += "-next" })
	Eventually(reconciled).WithContext(ctx).WithArguments(c).WithTimeout(changeTimeout).Should(HavePrefix("True"))
	if everything {
		// The worker of the old size has gone.
		Eventually(nodes).WithContext(ctx).WithArguments(c).WithTimeout(bootTimeout).Should(Equal(3))
		Eventually(sizes).WithContext(ctx).WithArguments(c).WithTimeout(bootTimeout).Should(ConsistOf(int64(4), int64(4), int64(6)))
	}
	Expect(creations(ctx, c)).To(Equal(before+4), "no machine is replaced")
}

// another makes a copy of a class and its templates under another name.
func another(ctx context.Context, objects []*unstructured.Unstructured) error {
	var copies []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() == "Cluster" {
			continue
		}
		renamed := object.DeepCopy()
		renamed.SetName(object.GetName() + "-next")
		if object.GetKind() == "ClusterClass" {
			rename(renamed.Object["spec"])
		}
		copies = append(copies, renamed)
	}
	return bed.Apply(ctx, one.Client, copies...)
}

// rename renames all templates that a value names.
func rename(value any) {
	switch value := value.(type) {
	case map[string]any:
		if reference, ok := value["templateRef"].(map[string]any); ok {
			reference["name"] = reference["name"].(string) + "-next"
		}
		for _, field := range value {
			rename(field)
		}
	case []any:
		for _, item := range value {
			rename(item)
		}
	}
}
