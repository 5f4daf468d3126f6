package tenant

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// readyNodes returns the names of the workload cluster's Ready nodes.
func readyNodes(ctx context.Context, c bed.Cluster) ([]string, error) {
	tenant, err := b.TenantClient(ctx, c.Key())
	if err != nil {
		return nil, err
	}
	nodes := &corev1.NodeList{}
	if err := tenant.List(ctx, nodes); err != nil {
		return nil, err
	}
	var names []string
	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				names = append(names, node.Name)
			}
		}
	}
	return names, nil
}

// awaitNodes waits until the workload cluster has exactly that number of nodes, all Ready.
func awaitNodes(ctx context.Context, c bed.Cluster, want int, timeout time.Duration) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		names, err := readyNodes(ctx, c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(names).To(HaveLen(want))
		tenant, err := b.TenantClient(ctx, c.Key())
		g.Expect(err).NotTo(HaveOccurred())
		nodes := &corev1.NodeList{}
		g.Expect(tenant.List(ctx, nodes)).To(Succeed())
		g.Expect(nodes.Items).To(HaveLen(want))
	}).WithContext(ctx).WithTimeout(timeout).Should(Succeed(), func() string { return describe(ctx, c) })
}

// awaitCoreDNS waits until two pods of CoreDNS run and are ready.
func awaitCoreDNS(ctx context.Context, c bed.Cluster) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		tenant, err := b.TenantClient(ctx, c.Key())
		g.Expect(err).NotTo(HaveOccurred())
		pods := &corev1.PodList{}
		g.Expect(tenant.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"k8s-app": "kube-dns"})).To(Succeed())
		ready := 0
		for _, pod := range pods.Items {
			if slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
				return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
			}) {
				ready++
			}
		}
		g.Expect(ready).To(Equal(2))
	}).WithContext(ctx).WithTimeout(joinTimeout).Should(Succeed())
}

// describe returns the conditions of the objects of a cluster that are not met.
func describe(ctx context.Context, c bed.Cluster) string {
	var out strings.Builder
	objects, err := objectsOf(ctx, c)
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	for _, object := range objects {
		for _, condition := range object.GetConditions() {
			if condition.Message != "" {
				fmt.Fprintf(&out, "%T %s: %s=%s %s: %s\n", object, object.GetName(), condition.Type, condition.Status, condition.Reason, condition.Message)
			}
		}
	}
	fmt.Fprintf(&out, "logs: %s\n", b.Logs())
	return out.String()
}

// objectsOf lists the objects of a cluster that say how they are.
func objectsOf(ctx context.Context, c bed.Cluster) ([]bed.Infra, error) {
	clusters, err := b.ListInfra(ctx, on(c), "Cluster", c.Namespace)
	if err != nil {
		return nil, err
	}
	machines, err := b.ListInfra(ctx, on(c), "Machine", c.Namespace)
	if err != nil {
		return nil, err
	}
	objects := slices.Concat(clusters, machines)
	for _, list := range []client.ObjectList{&clusterv1.ClusterList{}, &controlplanev1.NovaControlPlaneList{}, &clusterv1.MachineList{}} {
		if err := b.Client.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
			return nil, err
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			objects = append(objects, item.(bed.Infra))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// objectMeta names the objects of a cluster that have its name.
func objectMeta(c bed.Cluster) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace}
}

// vms lists the names of the VMs of a cluster.
func vms(ctx context.Context, c bed.Cluster) ([]string, error) {
	all, err := on(c).VMs(ctx)
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, c.Name+"-") }), err
}

// hosts lists the hosts that have a disk or run.
func hosts() []string {
	disks, err := filepath.Glob(filepath.Join(b.Hosts(), "*"))
	Expect(err).NotTo(HaveOccurred())
	running, err := filepath.Glob("/run/netns/nova-" + b.Name + "-*")
	Expect(err).NotTo(HaveOccurred())
	return append(disks, running...)
}

// deleteCluster deletes a Cluster and waits until nothing of it is left: no
// object, no VM, no host.
func deleteCluster(ctx context.Context, c bed.Cluster) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace}}
	Expect(client.IgnoreNotFound(b.Client.Delete(ctx, cluster))).To(Succeed())
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(apierrors.IsNotFound(b.Client.Get(ctx, c.Key(), &clusterv1.Cluster{}))).To(BeTrue(), "the Cluster is there")
		objects, err := objectsOf(ctx, c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(objects).To(BeEmpty())
		names, err := vms(ctx, c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(names).To(BeEmpty())
		g.Expect(hosts()).To(BeEmpty())
	}).WithContext(ctx).WithTimeout(deleteTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
}

// message returns a condition's reason and message.
func message(from conditions.Getter, condition string) string {
	c := conditions.Get(from, condition)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}
