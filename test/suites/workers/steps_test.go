package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// group is the MachineDeployment of a cluster.
func group(ctx context.Context, c *bed.Cluster) (*clusterv1.MachineDeployment, error) {
	md := &clusterv1.MachineDeployment{}
	return md, b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, md)
}

// change changes the MachineDeployment.
func change(ctx context.Context, c *bed.Cluster, how func(*clusterv1.MachineDeployment)) {
	GinkgoHelper()
	md, err := group(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	before := md.DeepCopy()
	how(md)
	Expect(b.Client.Patch(ctx, md, client.MergeFrom(before))).To(Succeed())
}

// scale sets the number of workers, and does not wait.
func scale(ctx context.Context, c *bed.Cluster, replicas int) {
	GinkgoHelper()
	c.Workers = replicas
	change(ctx, c, func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = ptr.To(int32(replicas)) })
}

// workers are the worker machines, the oldest first.
func workers(ctx context.Context, c *bed.Cluster) ([]clusterv1.Machine, error) {
	_, found, err := b.Machines(ctx, *c)
	slices.SortStableFunc(found, func(a, b clusterv1.Machine) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return found, err
}

// names are those of the worker machines, the oldest first.
func names(ctx context.Context, c *bed.Cluster) ([]string, error) {
	found, err := workers(ctx, c)
	var all []string
	for i := range found {
		all = append(all, found[i].Name)
	}
	return all, err
}

// namesNow are the names at this moment.
func namesNow(ctx context.Context, c *bed.Cluster) []string {
	GinkgoHelper()
	found, err := names(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	return found
}

// machine is a machine by its name.
func machine(ctx context.Context, c *bed.Cluster, name string) (*clusterv1.Machine, error) {
	m := &clusterv1.Machine{}
	return m, b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, m)
}

// changeMachine changes a machine.
func changeMachine(ctx context.Context, c *bed.Cluster, name string, how func(*clusterv1.Machine)) {
	GinkgoHelper()
	m, err := machine(ctx, c, name)
	Expect(err).NotTo(HaveOccurred())
	before := m.DeepCopy()
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	how(m)
	Expect(b.Client.Patch(ctx, m, client.MergeFrom(before))).To(Succeed())
}

// conditionText returns the reason and the message of a machine's condition.
func conditionText(ctx context.Context, c *bed.Cluster, name, condition string) (string, error) {
	m, err := machine(ctx, c, name)
	if err != nil {
		return "", err
	}
	return conditions.GetReason(m, condition) + ": " + conditions.GetMessage(m, condition), nil
}

// node is the node of a worker in its workload cluster.
func node(ctx context.Context, c *bed.Cluster, name string) (*corev1.Node, error) {
	tenant, err := b.TenantClient(ctx, c.Key())
	if err != nil {
		return nil, err
	}
	n := &corev1.Node{}
	return n, tenant.Get(ctx, client.ObjectKey{Name: name}, n)
}

// hypervisor is that of a cluster.
func hypervisor(c *bed.Cluster) bed.Hypervisor {
	GinkgoHelper()
	h, err := b.Hypervisor(c.Hypervisor)
	Expect(err).NotTo(HaveOccurred())
	return h
}

// awaitHealthy waits until the cluster is healthy and matches its spec.
func awaitHealthy(ctx context.Context, c *bed.Cluster, timeout time.Duration) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error { return b.CheckCluster(ctx, *c) }).
		WithContext(ctx).WithTimeout(timeout).Should(Succeed(), func() string { return story(ctx, c) })
}

// figuref puts a measure into the report.
func figuref(format string, args ...any) {
	GinkgoHelper()
	AddReportEntry("figure", fmt.Sprintf(format, args...))
	_, _ = fmt.Fprintf(GinkgoWriter, "figure: "+format+"\n", args...)
}

// story returns the conditions of the workers of a cluster that are not met.
func story(ctx context.Context, c *bed.Cluster) string {
	var out strings.Builder
	if md, err := group(ctx, c); err == nil {
		harness.PrintConditions(&out, "MachineDeployment", md, md.Name)
	}
	controlPlane, own, err := b.Machines(ctx, *c)
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	for _, m := range slices.Concat(controlPlane, own) {
		harness.PrintConditions(&out, "Machine", &m, m.Name)
	}
	fmt.Fprintf(&out, "logs: %s\n", b.Logs())
	return out.String()
}
