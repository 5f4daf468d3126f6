package controlplane

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// hypervisor is that of a cluster.
func hypervisor(c *bed.Cluster) bed.Hypervisor {
	GinkgoHelper()
	h, err := b.Hypervisor(c.Hypervisor)
	Expect(err).NotTo(HaveOccurred())
	return h
}

// create makes a cluster and waits until it is up.
func create(ctx context.Context, c *bed.Cluster) {
	GinkgoHelper()
	started := time.Now()
	Expect(b.Create(ctx, *c)).To(Succeed())
	awaitHealthy(ctx, c, bootTimeout)
	figuref("%d control planes and %d workers from apply to settled: %.0f s", c.ControlPlanes, c.Workers, time.Since(started).Seconds())
}

// figuref puts a measure into the report.
func figuref(format string, args ...any) {
	GinkgoHelper()
	AddReportEntry("figure", fmt.Sprintf(format, args...))
	_, _ = fmt.Fprintf(GinkgoWriter, "figure: "+format+"\n", args...)
}

// awaitHealthy waits until the cluster is healthy and matches its spec.
func awaitHealthy(ctx context.Context, c *bed.Cluster, timeout time.Duration) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error { return b.CheckCluster(ctx, *c) }).
		WithContext(ctx).WithTimeout(timeout).Should(Succeed(), func() string { return story(ctx, c) })
}

// change changes the control plane.
func change(ctx context.Context, c *bed.Cluster, how func(*controlplanev1.NovaControlPlane)) {
	GinkgoHelper()
	cp, err := b.ControlPlane(ctx, *c)
	Expect(err).NotTo(HaveOccurred())
	before := cp.DeepCopy()
	how(cp)
	Expect(b.Client.Patch(ctx, cp, client.MergeFrom(before))).To(Succeed())
}

// scale sets the number of control planes and waits for it, with quorum
// watched.
func scale(ctx context.Context, c *bed.Cluster, replicas int) {
	GinkgoHelper()
	By(fmt.Sprintf("scaling from %d to %d", c.ControlPlanes, replicas))
	started, from := time.Now(), c.ControlPlanes
	keepingQuorum(ctx, c, func() {
		c.ControlPlanes = replicas
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Replicas = ptr.To(int32(replicas)) })
		awaitHealthy(ctx, c, changeTimeout)
	})
	figuref("%d to %d control planes: %.0f s", from, replicas, time.Since(started).Seconds())
}

// keepingQuorum does something and fails if etcd lost its quorum meanwhile.
func keepingQuorum(ctx context.Context, c *bed.Cluster, do func()) {
	GinkgoHelper()
	members, err := b.Etcd(ctx, *c)
	Expect(err).NotTo(HaveOccurred())
	watch := bed.WatchQuorum(ctx, members)
	do()
	Expect(watch.Stop()).To(BeEmpty(), "quorum was lost")
}

// probing probes the endpoint during an action, and returns the results.
func probing(ctx context.Context, c *bed.Cluster, do func()) prober.Report {
	GinkgoHelper()
	check, err := b.EndpointCheck(ctx, *c)
	Expect(err).NotTo(HaveOccurred())
	p := prober.Start(ctx, 200*time.Millisecond, time.Second, check)
	do()
	return p.Stop()
}

// promises records time limits separately from functional checks: a busy machine is slow, and that
// must not hide whether the functions work.
type promises struct{ broken []string }

// withinf notes whether something took no longer than was promised.
func (p *promises) withinf(limit, took time.Duration, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	figuref("%s", what)
	if !everything {
		limit = max(limit, hardLoss) * besides
	}
	if took > limit {
		p.broken = append(p.broken, fmt.Sprintf("%.1f s instead of %s: %s", took.Seconds(), limit, what))
	}
}

// kept is the spec that reports whether all time limits were met.
func (p *promises) kept() {
	It("kept its promises", func() {
		Expect(p.broken).To(BeEmpty())
	})
}

// machines returns the control plane machines.
func machines(ctx context.Context, c *bed.Cluster) []clusterv1.Machine {
	GinkgoHelper()
	found, _, err := b.Machines(ctx, *c)
	Expect(err).NotTo(HaveOccurred())
	return found
}

// names returns the names of the control plane machines.
func names(ctx context.Context, c *bed.Cluster) []string {
	GinkgoHelper()
	var all []string
	for _, machine := range machines(ctx, c) {
		all = append(all, machine.Name)
	}
	return all
}

// holder returns the machine that has the endpoint.
func holder(ctx context.Context, c *bed.Cluster) string {
	GinkgoHelper()
	var name string
	Eventually(func(ctx context.Context) (err error) {
		name, err = b.EndpointHolder(ctx, *c)
		return err
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
	return name
}

// remove deletes a control plane machine, and does not wait.
func remove(ctx context.Context, c *bed.Cluster, name string) {
	GinkgoHelper()
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
	Expect(b.Client.Delete(ctx, machine)).To(Succeed())
}

// replaced waits until a machine is deleted and the cluster is complete again.
func replaced(ctx context.Context, c *bed.Cluster, gone ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		for _, name := range gone {
			err := b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &clusterv1.Machine{})
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "machine "+name+" is there")
		}
	}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
	awaitHealthy(ctx, c, changeTimeout)
}

// deleteCluster deletes a Cluster and waits until nothing of it is left: no
// object, no VM.
func deleteCluster(ctx context.Context, c *bed.Cluster) {
	GinkgoHelper()
	gone := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace}}
	Expect(client.IgnoreNotFound(b.Client.Delete(ctx, gone))).To(Succeed())
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(apierrors.IsNotFound(b.Client.Get(ctx, c.Key(), &clusterv1.Cluster{}))).To(BeTrue(), "the Cluster is there")
		g.Expect(b.VMsOf(ctx, *c)).To(BeEmpty())
		for _, kind := range []string{"Cluster", "Machine"} {
			left, err := b.ListInfra(ctx, hypervisor(c), kind, c.Namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(left).To(BeEmpty())
		}
		planes, own := &controlplanev1.NovaControlPlaneList{}, &clusterv1.MachineList{}
		g.Expect(b.Client.List(ctx, planes, client.InNamespace(c.Namespace))).To(Succeed())
		g.Expect(planes.Items).To(BeEmpty())
		g.Expect(b.Client.List(ctx, own, client.InNamespace(c.Namespace))).To(Succeed())
		g.Expect(own.Items).To(BeEmpty())
		g.Expect(hosts(c)).To(BeEmpty())
	}).WithContext(ctx).WithTimeout(deleteTimeout).Should(Succeed(), func() string { return story(ctx, c) })
}

// hosts lists the hosts of a cluster that have a disk.
func hosts(c *bed.Cluster) []string {
	GinkgoHelper()
	disks, err := filepath.Glob(filepath.Join(b.Hosts(), "*", "spec.json"))
	Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(disks, func(path string) bool { return !strings.Contains(read(path), `"Name":"`+c.Name+"-") })
}

// tenantEvents lists the events of a workload cluster, which are deleted with it.
func tenantEvents(ctx context.Context, c *bed.Cluster) string {
	tenant, err := b.TenantClient(ctx, c.Key())
	if err != nil {
		return err.Error()
	}
	events := &corev1.EventList{}
	if err := tenant.List(ctx, events); err != nil {
		return err.Error()
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	var out strings.Builder
	for i := range events.Items {
		e := &events.Items[i]
		fmt.Fprintf(&out, "%s %dx %s/%s %s: %s\n", e.LastTimestamp.Format(time.TimeOnly), e.Count, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	return out.String()
}

// story returns the conditions of the objects of a cluster that are not met.
func story(ctx context.Context, c *bed.Cluster) string {
	var out strings.Builder
	if cp, err := b.ControlPlane(ctx, *c); err == nil {
		harness.PrintConditions(&out, "NovaControlPlane", cp, cp.Name)
	}
	controlPlane, workers, err := b.Machines(ctx, *c)
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	for _, machine := range slices.Concat(controlPlane, workers) {
		harness.PrintConditions(&out, "Machine", &machine, machine.Name)
	}
	fmt.Fprintf(&out, "logs: %s\n", b.Logs())
	return out.String()
}
