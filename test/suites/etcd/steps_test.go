package etcd

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// create makes a cluster whose etcd is snapshotted into the bucket.
func create(ctx context.Context, c bed.Cluster) {
	GinkgoHelper()
	objects, err := b.Generate(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	for _, o := range objects {
		if o.GetKind() == "NovaControlPlane" {
			Expect(unstructured.SetNestedMap(o.Object, store.Snapshots(), "spec", "etcd", "snapshots")).To(Succeed())
		}
	}
	Expect(b.Credentials(ctx, c)).To(Succeed())
	// Two clusters of one namespace share it.
	Expect(client.IgnoreAlreadyExists(b.Client.Create(ctx, store.Login(c.Namespace)))).To(Succeed())
	Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
}

func controlPlane(ctx context.Context, c bed.Cluster) (*controlplanev1.NovaControlPlane, error) {
	cp := &controlplanev1.NovaControlPlane{}
	return cp, b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-control-plane"}, cp)
}

// awaitWhole waits until all machines of the control plane are ready, etcd is
// healthy with a member on each, and the nodes are those of the cluster and
// all ready.
func awaitWhole(ctx context.Context, c bed.Cluster, timeout time.Duration) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		cp, err := controlPlane(ctx, c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(cp.Status.Replicas).To(HaveValue(BeEquivalentTo(c.ControlPlanes)))
		g.Expect(cp.Status.ReadyReplicas).To(HaveValue(BeEquivalentTo(c.ControlPlanes)))
		g.Expect(conditions.IsTrue(cp, controlplanev1.AvailableCondition)).To(BeTrue(), "available")
		g.Expect(conditions.IsTrue(cp, controlplanev1.EtcdClusterHealthyCondition)).To(BeTrue(), "etcd is healthy")
		nodes := nodes(ctx, g, c)
		g.Expect(nodes).To(HaveLen(c.ControlPlanes + c.Workers))
		for _, node := range nodes {
			g.Expect(node.Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))), node.Name)
		}
	}).WithContext(ctx).WithTimeout(timeout).Should(Succeed(), func() string { return describe(ctx, c) })
}

func nodes(ctx context.Context, g Gomega, c bed.Cluster) []corev1.Node {
	tenant, err := b.TenantClient(ctx, c.Key())
	g.Expect(err).NotTo(HaveOccurred())
	list := &corev1.NodeList{}
	g.Expect(tenant.List(ctx, list)).To(Succeed())
	return list.Items
}

// write writes a ConfigMap into the workload cluster.
func write(ctx context.Context, c bed.Cluster, name string) {
	GinkgoHelper()
	tenant, err := b.TenantClient(ctx, c.Key())
	Expect(err).NotTo(HaveOccurred())
	Expect(tenant.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})).To(Succeed())
}

// written reports whether a ConfigMap exists in the workload cluster.
func written(ctx context.Context, c bed.Cluster, name string) (bool, error) {
	tenant, err := b.TenantClient(ctx, c.Key())
	if err != nil {
		return false, err
	}
	err = tenant.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &corev1.ConfigMap{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// snapshot requests a snapshot and waits for it.
func snapshot(ctx context.Context, c bed.Cluster) controlplanev1.EtcdSnapshotStatus {
	GinkgoHelper()
	requested := time.Now().Truncate(time.Second)
	Eventually(func(ctx context.Context) error {
		cp, err := controlPlane(ctx, c)
		if err != nil {
			return err
		}
		before := cp.DeepCopy()
		if cp.Annotations == nil {
			cp.Annotations = map[string]string{}
		}
		cp.Annotations[controlplanev1.EtcdSnapshotAnnotation] = "now"
		return b.Client.Patch(ctx, cp, client.MergeFrom(before))
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
	var taken controlplanev1.EtcdSnapshotStatus
	Eventually(func(g Gomega, ctx context.Context) {
		cp, err := controlPlane(ctx, c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(cp.Annotations).NotTo(HaveKey(controlplanev1.EtcdSnapshotAnnotation))
		taken = cp.Status.Etcd.LastSnapshot
		g.Expect(taken.Time.Time).To(BeTemporally(">=", requested))
		g.Expect(conditions.IsTrue(cp, controlplanev1.EtcdSnapshotsHealthyCondition)).To(BeTrue())
	}).WithContext(ctx).WithTimeout(2*time.Minute).Should(Succeed(), func() string { return describe(ctx, c) })
	return taken
}

// alarm raises or disarms NOSPACE on the member of the one machine of a control
// plane, over etcd's gateway: the bed's etcd has no etcdctl.
func alarm(ctx context.Context, c bed.Cluster, action string) {
	GinkgoHelper()
	const ask = `pki=/etc/kubernetes/pki/etcd
ask() { curl -sS --fail --cacert $pki/ca.crt --cert $pki/server.crt --key $pki/server.key "https://127.0.0.1:2379/v3/$1" -d "$2"; }
id=$(ask cluster/member/list '{"linearizable":false}' | sed 's/.*"member_id":"\([0-9]*\)".*/\1/')
ask maintenance/alarm '{"action":"'"$ACTION"'","memberID":"'"$id"'","alarm":"NOSPACE"}'`
	out, err := b.Exec(ctx, machines(ctx, c)[0].Name, "env", "ACTION="+action, "sh", "-ec", ask)
	Expect(err).NotTo(HaveOccurred(), out)
	AddReportEntry(action, out)
}

func machines(ctx context.Context, c bed.Cluster) []clusterv1.Machine {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(b.Client.List(ctx, list, client.InNamespace(c.Namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel},
		client.MatchingLabels{clusterv1.ClusterNameLabel: c.Name})).To(Succeed())
	return list.Items
}

// lose takes the VMs of machines away for good, behind everybody's back. The
// provider stands still meanwhile: it would start a VM that it finds off.
func lose(ctx context.Context, machines ...clusterv1.Machine) {
	GinkgoHelper()
	const provider = "nova-vsphere"
	h, err := b.Hypervisor("")
	Expect(err).NotTo(HaveOccurred())
	Expect(b.Kill(provider, syscall.SIGSTOP)).To(Succeed())
	defer func() { Expect(b.Kill(provider, syscall.SIGCONT)).To(Succeed()) }()
	for _, machine := range machines {
		Expect(h.PowerOff(ctx, machine.Name)).To(Succeed())
		Expect(h.Destroy(ctx, machine.Name)).To(Succeed())
	}
}

// restore makes a NovaEtcdRestore.
func restore(ctx context.Context, c bed.Cluster, source controlplanev1.NovaEtcdRestoreSource) *controlplanev1.NovaEtcdRestore {
	GinkgoHelper()
	r := &controlplanev1.NovaEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, GenerateName: "restore-"},
		Spec: controlplanev1.NovaEtcdRestoreSpec{
			ControlPlaneRef: controlplanev1.NovaEtcdRestoreControlPlaneReference{Name: c.Name + "-control-plane"},
			Source:          source,
		},
	}
	Expect(b.Client.Create(ctx, r)).To(Succeed())
	return r
}

// awaitRestored waits until a restore is through, and prints how long its
// phases took.
func awaitRestored(ctx context.Context, c bed.Cluster, r *controlplanev1.NovaEtcdRestore) {
	GinkgoHelper()
	begun := time.Now()
	phase := controlplanev1.EtcdRestorePhase("")
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(r), r)).To(Succeed())
		if r.Status.Phase != phase {
			phase = r.Status.Phase
			AddReportEntry(fmt.Sprintf("%s: %s after %s", c.Name, phase, time.Since(begun).Round(time.Second)))
		}
		g.Expect(r.Status.Phase).To(Equal(controlplanev1.EtcdRestoreSucceeded))
	}).WithContext(ctx).WithTimeout(restoreTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
	Expect(conditions.IsTrue(r, controlplanev1.EtcdRestoreReadyCondition)).To(BeTrue())
	secret := &corev1.Secret{}
	Expect(apierrors.IsNotFound(b.Client.Get(ctx, client.ObjectKeyFromObject(r), secret))).To(BeTrue(), "the URL is of no use any more")
}

// deleteCluster deletes a Cluster and waits until nothing of it is left.
func deleteCluster(ctx context.Context, c bed.Cluster) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace}}
	Expect(client.IgnoreNotFound(b.Client.Delete(ctx, cluster))).To(Succeed())
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(apierrors.IsNotFound(b.Client.Get(ctx, c.Key(), &clusterv1.Cluster{}))).To(BeTrue(), "the Cluster is there")
		left := &controlplanev1.NovaEtcdRestoreList{}
		g.Expect(b.Client.List(ctx, left, client.InNamespace(c.Namespace))).To(Succeed())
		g.Expect(left.Items).NotTo(ContainElement(HaveField("Spec.ControlPlaneRef.Name", c.Name+"-control-plane")))
	}).WithContext(ctx).WithTimeout(deleteTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
}

// describe returns the conditions of the objects of a cluster that are not met.
func describe(ctx context.Context, c bed.Cluster) string {
	var out strings.Builder
	tell := func(what, name string, all []metav1.Condition) {
		for _, condition := range all {
			if condition.Message != "" {
				fmt.Fprintf(&out, "%s %s: %s=%s %s: %s\n", what, name, condition.Type, condition.Status, condition.Reason, condition.Message)
			}
		}
	}
	if cp, err := controlPlane(ctx, c); err == nil {
		tell("NovaControlPlane", cp.Name, cp.Status.Conditions)
	}
	restores := &controlplanev1.NovaEtcdRestoreList{}
	if err := b.Client.List(ctx, restores, client.InNamespace(c.Namespace)); err == nil {
		for _, r := range restores.Items {
			tell("NovaEtcdRestore "+string(r.Status.Phase), r.Name, r.Status.Conditions)
		}
	}
	list := &clusterv1.MachineList{}
	if err := b.Client.List(ctx, list, client.InNamespace(c.Namespace)); err == nil {
		for i := range list.Items {
			tell("Machine", list.Items[i].Name, list.Items[i].Status.Conditions)
		}
	}
	fmt.Fprintf(&out, "logs: %s\n", b.Logs())
	return out.String()
}
