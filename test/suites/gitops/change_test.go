package gitops

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// next is a release after the one that the repository began with.
const next = "v0.1.1"

// committed is an annotation that comes to the second wave by a commit.
const committed = "gitops.example/committed"

// versions are the kubelet versions of a workload cluster's ready nodes.
func versions(ctx context.Context, c bed.Cluster) ([]string, error) {
	tenant, err := b.TenantClient(ctx, c.Key())
	if err != nil {
		return nil, err
	}
	nodes := &corev1.NodeList{}
	err = tenant.List(ctx, nodes)
	var found []string
	for i := range nodes.Items {
		for _, condition := range nodes.Items[i].Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				found = append(found, nodes.Items[i].Status.NodeInfo.KubeletVersion)
			}
		}
	}
	return found, err
}

// names are the names of a workload cluster's machines.
func names(ctx context.Context, c bed.Cluster) ([]string, error) {
	machines := &clusterv1.MachineList{}
	err := b.Client.List(ctx, machines, client.InNamespace(c.Namespace))
	var found []string
	for i := range machines.Items {
		found = append(found, machines.Items[i].Name)
	}
	return found, err
}

// upgrades takes acme, which began a minor version lower, to the version of
// everybody else: its machines come from the template of that version.
func upgrades(ctx context.Context, r repository) {
	r.edit("tenants/test/acme/cluster.yaml", bed.OlderVersion, bed.KubernetesVersion)
	r.commit(ctx, "Upgrade acme")
	r.look(ctx)
	Eventually(versions).WithContext(ctx).WithArguments(acme).WithTimeout(bootTimeout).Should(And(
		HaveLen(3), HaveEach(bed.KubernetesVersion)))
	Eventually(ready).WithContext(ctx).WithArguments("tenants-test").WithTimeout(bootTimeout).Should(HavePrefix("True"))
}

// second reports whether the commit of rollsOut has reached the second wave.
func second(ctx context.Context) (bool, error) {
	namespace := &corev1.Namespace{}
	if err := b.Client.Get(ctx, client.ObjectKey{Name: globex.Namespace}, namespace); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if _, ok := namespace.Annotations[committed]; ok || !everything {
		return ok, nil
	}
	cluster := &clusterv1.Cluster{}
	err := b.Client.Get(ctx, globex.Key(), cluster)
	return slices.ContainsFunc(cluster.Spec.Topology.Variables, func(v clusterv1.ClusterVariable) bool { return v.Name == "nodeSize" }), err
}

// rollsOut changes the size of the nodes of the clusters on all hypervisors with one commit.
func rollsOut(ctx context.Context, r repository) {
	Eventually(ready).WithContext(ctx).WithArguments("tenants-test").WithTimeout(bootTimeout).Should(HavePrefix("True"))
	before, err := names(ctx, acme)
	Expect(err).NotTo(HaveOccurred())
	Expect(before).To(HaveLen(3))
	for _, hypervisor := range sampled {
		r.edit("hypervisors/"+hypervisor+"/variables.yaml", "# One template for each Kubernetes version.\n",
			"- {op: add, path: /spec/topology/variables/-, value: {name: nodeSize, value: {cpus: 6, memoryMiB: 4096}}}\n")
	}
	r.edit("tenants/production/globex/namespace.yaml", "annotations: {", "annotations: {"+committed+": six, ")
	r.commit(ctx, "Give nodes six processors")
	r.look(ctx)
	waited := 0
	Eventually(func(g Gomega, ctx context.Context) {
		// In this order: machines are only ever fewer of those before.
		begun, err := second(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		after, err := names(ctx, acme)
		g.Expect(err).NotTo(HaveOccurred())
		kept := slices.DeleteFunc(after, func(name string) bool { return !slices.Contains(before, name) })
		if len(kept) > 1 {
			waited++
			if begun {
				StopTrying("the second wave has begun, and the first still has " + strings.Join(kept, ", ")).Now()
			}
		}
		g.Expect(kept).To(HaveLen(1), "the control plane's machine stays")
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
	Expect(waited).NotTo(BeZero(), "machines were seen being replaced")
	Eventually(second).WithContext(ctx).WithTimeout(bootTimeout).Should(BeTrue())
	Expect(names(ctx, acme)).To(HaveLen(len(before)), "nothing of the first wave is under way")
	Eventually(ready).WithContext(ctx).WithArguments("tenants-production").WithTimeout(bootTimeout).Should(HavePrefix("True"))
}

// changesClass adds the classes of another release, which say the same, and
// takes acme there.
func changesClass(ctx context.Context, r repository) {
	before, err := names(ctx, acme)
	Expect(err).NotTo(HaveOccurred())
	release := GinkgoT().TempDir()
	r.run(ctx, filepath.Join(tools.Root(), "hack", "gitops.sh"), release, next)
	r.run(ctx, "cp", "-R", filepath.Join(release, "classes", next), "classes/")
	r.edit("classes/kustomization.yaml", "  - v0.1.0\n", "  - v0.1.0\n  - "+next+"\n")
	r.edit("tenants/test/acme/cluster.yaml", "nova-vsphere-v0.1.0", "nova-vsphere-"+next)
	r.commit(ctx, "Take acme to the next classes")
	r.look(ctx)
	Eventually(func(g Gomega, ctx context.Context) {
		cluster := &clusterv1.Cluster{}
		g.Expect(b.Client.Get(ctx, acme.Key(), cluster)).To(Succeed())
		g.Expect(cluster.Spec.Topology.ClassRef.Name).To(Equal("nova-vsphere-" + next))
		g.Expect(cluster.Status.ObservedGeneration).To(Equal(cluster.Generation))
		g.Expect(ready(ctx, "tenants-test")).To(HavePrefix("True"))
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
	Expect(names(ctx, acme)).To(ConsistOf(before))
}
