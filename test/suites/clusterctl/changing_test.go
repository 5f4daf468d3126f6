package clusterctl

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
	"github.com/nova-platform/cluster-api-provider-nova/test/s3"
)

// machineNames are those of a cluster's machines, and those among them that are
// being deleted.
func machineNames(ctx context.Context, in *bed.Empty, c bed.Cluster) (all, deleting []string, err error) {
	list := &clusterv1.MachineList{}
	if err := in.Client.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		all = append(all, list.Items[i].Name)
		if !list.Items[i].DeletionTimestamp.IsZero() {
			deleting = append(deleting, list.Items[i].Name)
		}
	}
	slices.Sort(all)
	return all, deleting, nil
}

// awaitWhole waits until a cluster has its number of machines, of which none is
// one of the given, with ready nodes and no VM besides, and is available.
func awaitWhole(ctx context.Context, in *bed.Empty, c bed.Cluster, gone ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		all, deleting, err := machineNames(ctx, in, c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(all).To(HaveLen(c.ControlPlanes + c.Workers))
		g.Expect(deleting).To(BeEmpty())
		for _, name := range gone {
			g.Expect(all).NotTo(ContainElement(name))
		}
		g.Expect(readyIn(ctx, in, c)).To(Equal(c.ControlPlanes + c.Workers))
		tenant, err := in.TenantClient(ctx, c.Key())
		g.Expect(err).NotTo(HaveOccurred())
		nodes := &corev1.NodeList{}
		g.Expect(tenant.List(ctx, nodes)).To(Succeed())
		g.Expect(nodes.Items).To(HaveLen(c.ControlPlanes + c.Workers))
		g.Expect(b.VMsOf(ctx, c)).To(HaveLen(c.ControlPlanes + c.Workers))
		plane := &controlplanev1.NovaControlPlane{}
		g.Expect(in.Client.Get(ctx, planeOf(c), plane)).To(Succeed())
		for _, condition := range []string{controlplanev1.AvailableCondition, controlplanev1.EtcdClusterHealthyCondition} {
			g.Expect(meta.IsStatusConditionTrue(plane.Status.Conditions, condition)).To(BeTrue(), condition)
		}
	}).WithContext(ctx).WithTimeout(2 * bootTimeout).Should(Succeed())
}

// planeOf is the name of a cluster's NovaControlPlane.
func planeOf(c bed.Cluster) client.ObjectKey {
	return client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-control-plane"}
}

// moves moves a cluster as soon as clusterctl agrees, which refuses while a
// machine has no node.
func moves(ctx context.Context, from, to *bed.Empty, c bed.Cluster) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error {
		_, err := command(ctx, "clusterctl", nil, "move", "--kubeconfig", from.Kubeconfig(), "--to-kubeconfig", to.Kubeconfig(), "-n", c.Namespace)
		return err
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
	Eventually(func(ctx context.Context) ([]string, error) {
		all, _, err := machineNames(ctx, from, c)
		return all, err
	}).WithContext(ctx).WithTimeout(changeTimeout).Should(BeEmpty(), "nothing is left behind")
}

// endpoint sends a request to the endpoint of a cluster, with the administrator's kubeconfig
// in the management cluster that has it.
func endpoint(ctx context.Context, c bed.Cluster) error {
	check, err := two.EndpointCheck(ctx, c)
	if err != nil {
		check, err = one.EndpointCheck(ctx, c)
	}
	if err != nil {
		return err
	}
	return check(ctx)
}

// describeChanging moves a control plane of three while it is rolled out, back
// while one of its machines is being deleted, again while it is restored, and back while
// its CAs are replaced.
func describeChanging() {
	c := bed.Cluster{Name: "changing", Namespace: "changing", Hypervisor: bed.VSphere, ControlPlanes: 3, Endpoint: "10.77.0.60"}

	var store *s3.Server

	BeforeAll(func(ctx context.Context) {
		dir, err := os.MkdirTemp("", "nova-s3-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(os.RemoveAll(dir)).To(Succeed()) })
		store, err = s3.Start(ctx, s3.Options{Dir: dir, IP: host.Gateway, Inside: b.Inside, Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { store.Stop() })
	})

	It("makes a cluster of three control planes", func(ctx context.Context) {
		for _, in := range []*bed.Empty{one, two} {
			Expect(in.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}})).To(Succeed())
		}
		Expect(credentials(ctx, c)).To(Succeed())
		login := store.Login(c.Namespace)
		login.Labels = map[string]string{clusterctlv1.ClusterctlMoveLabel: ""}
		Expect(one.Client.Create(ctx, login)).To(Succeed())
		objects, err := bed.Suit([]byte(generate(ctx, c, "", nil)), c)
		Expect(err).NotTo(HaveOccurred())
		for _, o := range objects {
			if o.GetKind() == "NovaControlPlane" {
				Expect(unstructured.SetNestedMap(o.Object, store.Snapshots(), "spec", "etcd", "snapshots")).To(Succeed())
			}
		}
		Eventually(func() error { return bed.Apply(ctx, one.Client, objects...) }).WithTimeout(changeTimeout).Should(Succeed())
		awaitWhole(ctx, one, c)
	})

	It("continues a rollout after a move", func(ctx context.Context) {
		before, _, err := machineNames(ctx, one, c)
		Expect(err).NotTo(HaveOccurred())
		plane := &controlplanev1.NovaControlPlane{}
		Expect(one.Client.Get(ctx, planeOf(c), plane)).To(Succeed())
		old := plane.DeepCopy()
		plane.Spec.Rollout.After = ptr.To(metav1.Now())
		Expect(one.Client.Patch(ctx, plane, client.MergeFrom(old))).To(Succeed())
		Eventually(func(ctx context.Context) ([]string, error) {
			all, _, err := machineNames(ctx, one, c)
			return all, err
		}).WithContext(ctx).WithTimeout(changeTimeout).ShouldNot(Equal(before), "the rollout has begun")
		moves(ctx, one, two, c)
		at, _, err := machineNames(ctx, two, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(at).To(ContainElement(BeElementOf(before)), "else the rollout was through")
		takesOver(ctx, two, c)
		awaitWhole(ctx, two, c, before...)
	})

	It("replaces a machine whose deletion a move has made forgotten", func(ctx context.Context) {
		before, _, err := machineNames(ctx, two, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(two.Client.Delete(ctx, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: before[0]}})).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			_, deleting, err := machineNames(ctx, two, c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(deleting).To(Equal(before[:1]))
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed())
		moves(ctx, two, one, c)
		takesOver(ctx, one, c)
		awaitWhole(ctx, one, c)
	})

	It("continues a restore after a move", func(ctx context.Context) {
		annotate := func(to map[string]string) {
			GinkgoHelper()
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": to}})
			Expect(err).NotTo(HaveOccurred())
			plane := &controlplanev1.NovaControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: planeOf(c).Name}}
			Expect(one.Client.Patch(ctx, plane, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		annotate(map[string]string{controlplanev1.EtcdSnapshotAnnotation: "now"})
		Eventually(func(g Gomega, ctx context.Context) {
			plane := &controlplanev1.NovaControlPlane{}
			g.Expect(one.Client.Get(ctx, planeOf(c), plane)).To(Succeed())
			g.Expect(plane.Annotations).NotTo(HaveKey(controlplanev1.EtcdSnapshotAnnotation))
			g.Expect(plane.Status.Etcd.LastSnapshot.Name).NotTo(BeEmpty())
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed())
		before, _, err := machineNames(ctx, one, c)
		Expect(err).NotTo(HaveOccurred())
		r := &controlplanev1.NovaEtcdRestore{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "moved"},
			Spec: controlplanev1.NovaEtcdRestoreSpec{
				ControlPlaneRef: controlplanev1.NovaEtcdRestoreControlPlaneReference{Name: planeOf(c).Name},
				Source:          controlplanev1.NovaEtcdRestoreSource{Snapshot: controlplanev1.NovaEtcdRestoreSnapshot{Name: controlplanev1.LatestEtcdSnapshot}},
			},
		}
		Expect(one.Client.Create(ctx, r)).To(Succeed())
		By("waiting for the machine that restores the snapshot, which has no node yet")
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(one.Client.Get(ctx, client.ObjectKeyFromObject(r), r)).To(Succeed())
			g.Expect(r.Status.Machine).NotTo(BeEmpty())
			all, _, err := machineNames(ctx, one, c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(all).To(ConsistOf(r.Status.Machine))
		}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
		_, err = command(ctx, "clusterctl", nil, "move", "--kubeconfig", one.Kubeconfig(), "--to-kubeconfig", two.Kubeconfig(), "-n", c.Namespace)
		Expect(err).To(MatchError(ContainSubstring("still provisioning the node")))
		pretendNodes(ctx, c)
		moves(ctx, one, two, c)
		pauseConfigs(ctx, two, c, false)
		Expect(two.Client.Get(ctx, client.ObjectKeyFromObject(r), r)).To(Succeed())
		Expect(r.Finished()).To(BeEmpty(), "else the restore was through")
		takesOver(ctx, two, c)
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(two.Client.Get(ctx, client.ObjectKeyFromObject(r), r)).To(Succeed())
			g.Expect(r.Status.Phase).To(Equal(controlplanev1.EtcdRestoreSucceeded), "%v", r.Status.Conditions)
		}).WithContext(ctx).WithTimeout(2 * bootTimeout).Should(Succeed())
		awaitWhole(ctx, two, c, before...)
	})

	It("continues the replacement of its CAs after a move", func(ctx context.Context) {
		whole := c
		whole.Workers = 1 // it gets the CAs after the control plane
		workers := &clusterv1.MachineDeployment{}
		Expect(two.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, workers)).To(Succeed())
		scaled := workers.DeepCopy()
		scaled.Spec.Replicas = ptr.To(int32(whole.Workers))
		Expect(two.Client.Patch(ctx, scaled, client.MergeFrom(workers))).To(Succeed())
		awaitWhole(ctx, two, whole)
		before, _, err := machineNames(ctx, two, c)
		Expect(err).NotTo(HaveOccurred())
		probes := prober.Start(ctx, time.Second, 2*time.Second, func(ctx context.Context) error { return endpoint(ctx, c) })
		plane := &controlplanev1.NovaControlPlane{}
		Expect(two.Client.Get(ctx, planeOf(c), plane)).To(Succeed())
		old := plane.DeepCopy()
		plane.Spec.Rollout.AuthoritiesAfter = ptr.To(metav1.Now())
		Expect(two.Client.Patch(ctx, plane, client.MergeFrom(old))).To(Succeed())
		stage := func(in *bed.Empty) func(context.Context) (string, error) {
			return func(ctx context.Context) (string, error) {
				plane := &controlplanev1.NovaControlPlane{}
				err := in.Client.Get(ctx, planeOf(c), plane)
				return conditions.GetReason(plane, controlplanev1.AuthoritiesRotatedCondition), err
			}
		}
		Eventually(stage(two)).WithContext(ctx).WithTimeout(2 * bootTimeout).Should(Equal(controlplanev1.AuthoritiesIssuingNewReason))
		moves(ctx, two, one, c)
		takesOver(ctx, one, c)
		Eventually(stage(one)).WithContext(ctx).WithTimeout(changeTimeout).Should(Equal(controlplanev1.AuthoritiesIssuingNewReason), "it is read from certificates and nodes")
		Eventually(stage(one)).WithContext(ctx).WithTimeout(2 * bootTimeout).Should(Equal(controlplanev1.AuthoritiesRotatedReason))
		awaitWhole(ctx, one, whole, before...)
		AddReportEntry("requests to the endpoint", probes.Stop().String())
	})

	It("leaves nothing of the cluster that moved", func(ctx context.Context) {
		Expect(one.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}})).To(Succeed())
		awaitDeleted(ctx, c)
	})
}
