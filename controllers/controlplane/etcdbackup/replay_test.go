package etcdbackup

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// again recreates a restore as a move or a restored backup does: the object and
// its Secret get new UIDs, and the status is lost.
func (r *rig) again(ctx context.Context, of *controlplanev1.NovaEtcdRestore) {
	GinkgoHelper()
	secret := &corev1.Secret{}
	err := testEnv.Client.Get(ctx, client.ObjectKeyFromObject(of), secret)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	Expect(testEnv.Client.Delete(ctx, of.DeepCopy())).To(Succeed())
	back := &controlplanev1.NovaEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name, Annotations: of.Annotations, OwnerReferences: of.OwnerReferences}, Spec: of.Spec,
	}
	Expect(testEnv.Client.Create(ctx, back)).To(Succeed())
	if err == nil {
		Expect(testEnv.Client.Delete(ctx, secret.DeepCopy())).To(Succeed())
		moved := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: of.Namespace, Name: of.Name, Labels: secret.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(back, controlplanev1.GroupVersion.WithKind("NovaEtcdRestore"))},
			}, Type: secret.Type, Data: secret.Data,
		}
		Expect(testEnv.Client.Create(ctx, moved)).To(Succeed())
	}
}

// begin sets the restore in progress in the init lock.
func (r *rig) begin(ctx context.Context, restore, machine string) {
	GinkgoHelper()
	Expect(initlock.BeginRestore(ctx, testEnv.Client, r.cluster(ctx), restore, machine, r.now)).To(Succeed())
}

// message is the message of the restore's condition.
func message(restore *controlplanev1.NovaEtcdRestore) string {
	return conditions.GetMessage(restore, controlplanev1.EtcdRestoreReadyCondition)
}

var _ = Describe("A restore in a restored backup of the management cluster", func() {
	It("is not carried out again", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.taken(ctx)
		r.addRestore(ctx, "back", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		backup := r.reconcileRestore(ctx, "back")
		Expect(backup.Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
		Expect(backup.Annotations).To(HaveKeyWithValue(controlplanev1.EtcdRestoreIDAnnotation, string(backup.UID)))
		r.useEnvAsWorkloadCluster(ctx)
		addNode(ctx, machineName, map[string]string{facts.RoleControlPlane: ""}, nil)
		r.begin(ctx, "back", machineName)
		Expect(r.reconcileRestore(ctx, "back").Status.Phase).To(Equal(controlplanev1.EtcdRestoreJoining))
		records := &corev1.ConfigMap{}
		Expect(testEnv.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: controlplanev1.EtcdRestoresConfigMap}, records)).To(Succeed())
		Expect(records.Data).To(HaveKeyWithValue(string(backup.UID), machineName))

		for phase, begin := range map[string]bool{"while it was prepared": false, "while machines were deleted": true} {
			By("restoring a backup from the time " + phase)
			r.again(ctx, backup)
			if begin {
				r.begin(ctx, "back", "")
			}
			restore := r.reconcileRestore(ctx, "back")
			Expect(restore.UID).NotTo(Equal(backup.UID))
			Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreJoining), message(restore))
			Expect(restore.Annotations).To(HaveKeyWithValue(controlplanev1.EtcdRestoredAnnotation, machineName))
			Expect(restore.Restored()).To(BeTrue(), "the control plane continues as usual")
			lock, err := initlock.ObserveRestore(ctx, testEnv.Client, r.cluster(ctx))
			Expect(err).NotTo(HaveOccurred())
			Expect(lock.Name).To(BeEmpty())
		}

		By("restoring an older snapshot, which does not have the note, and keeping it")
		Expect(testEnv.Client.Delete(ctx, records)).To(Succeed())
		r.makeWhole(ctx)
		Expect(r.reconcileRestore(ctx, "back").Status.Phase).To(Equal(controlplanev1.EtcdRestoreSucceeded))
		r.addRestore(ctx, "older", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		r.reconcileRestore(ctx, "older")
		r.begin(ctx, "older", machineName)
		older := r.reconcileRestore(ctx, "older")
		Expect(older.Status.Phase).To(Equal(controlplanev1.EtcdRestoreJoining), message(older))
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(records), records)).To(Succeed())
		Expect(records.Data).To(And(HaveKeyWithValue(string(backup.UID), machineName), HaveKeyWithValue(string(older.UID), machineName)))
	})

	It("continues after a move interrupts it", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.taken(ctx)
		r.addRestore(ctx, "back", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		restore := r.reconcileRestore(ctx, "back")
		id := restore.Annotations[controlplanev1.EtcdRestoreIDAnnotation]

		By("being prepared")
		r.again(ctx, restore)
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
		r.download(ctx, "back")

		By("deleting machines")
		r.begin(ctx, "back", "")
		r.again(ctx, restore)
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreRemoving))

		By("restoring")
		r.begin(ctx, "back", machineName)
		r.useEnvAsWorkloadCluster(ctx)
		r.again(ctx, restore)
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreRestoring))

		By("joining")
		addNode(ctx, machineName, map[string]string{facts.RoleControlPlane: ""}, nil)
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreJoining))
		r.again(ctx, restore)
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreJoining))
		Expect(restore.Annotations).To(HaveKeyWithValue(controlplanev1.EtcdRestoreIDAnnotation, id))

		By("being over")
		r.makeWhole(ctx)
		restore = r.reconcileRestore(ctx, "back")
		r.again(ctx, restore)
		Expect(r.reconcileRestore(ctx, "back").Status.Phase).To(Equal(controlplanev1.EtcdRestoreSucceeded))
	})
})

var _ = Describe("A restore with fencing", func() {
	It("names machines that exist, and waits for the others only", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.taken(ctx)
		r.addRestore(ctx, "back", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		restore := &controlplanev1.NovaEtcdRestore{}
		Expect(testEnv.Client.Get(ctx, r.key("back"), restore)).To(Succeed())
		restore.Spec.Fencing.Machines = []string{"c-cp-O"}
		Expect(testEnv.Client.Update(ctx, restore)).To(Succeed())
		restore = r.reconcileRestore(ctx, "back")
		Expect(conditions.GetReason(restore, controlplanev1.EtcdRestoreReadyCondition)).To(Equal(controlplanev1.EtcdRestoreUnknownMachineReason))
		Expect(message(restore)).To(ContainSubstring("not control plane Machines of Cluster c: c-cp-O"))
		Expect(apierrors.IsNotFound(testEnv.Client.Get(ctx, r.key("back"), &corev1.Secret{}))).To(BeTrue(), "nothing was changed")

		By("correcting the name")
		restore.Spec.Fencing.Machines = []string{machineName}
		Expect(testEnv.Client.Update(ctx, restore)).To(Succeed())
		Expect(r.reconcileRestore(ctx, "back").Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
		r.begin(ctx, "back", "")
		Expect(message(r.reconcileRestore(ctx, "back"))).To(Equal("Waiting for machines to be deleted: "+machineName), "it is deleted first")
		machine := &clusterv1.Machine{}
		Expect(testEnv.Client.Get(ctx, r.key(machineName), machine)).To(Succeed())
		machine.Finalizers = []string{"test.example.com/held"}
		Expect(testEnv.Client.Update(ctx, machine)).To(Succeed())
		Expect(testEnv.Client.Delete(ctx, machine)).To(Succeed())
		Expect(message(r.reconcileRestore(ctx, "back"))).To(Equal("Waiting for the machine that restores etcd to be created"))

		By("reporting that the API server still answers")
		r.useEnvAsWorkloadCluster(ctx)
		Expect(message(r.reconcileRestore(ctx, "back"))).To(ContainSubstring("the API server stops answering"))
	})
})

var _ = Describe("A control plane on external etcd", func() {
	external := func(cp *controlplanev1.NovaControlPlane) {
		cp.Spec.Etcd = controlplanev1.EtcdSpec{External: controlplanev1.ExternalEtcdSpec{Endpoints: []string{"https://etcd:2379"}}}
	}

	It("is initialized again with the data that is there", func(ctx context.Context) {
		r := newRig(ctx, external)
		r.addRestore(ctx, "back", fromExternal())
		Expect(r.reconcileRestore(ctx, "back").Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
		secret := &corev1.Secret{}
		Expect(testEnv.Client.Get(ctx, r.key("back"), secret)).To(Succeed())
		Expect(secret.Data).To(BeEmpty(), "nothing is downloaded")
		r.begin(ctx, "back", machineName)
		r.now = r.now.Add(4 * timelimits.Hourly)
		r.useEnvAsWorkloadCluster(ctx)
		restore := r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreRestoring))
		Expect(message(restore)).To(Equal("Waiting for machine " + machineName + " to initialize the control plane with the data of external etcd"))
		addNode(ctx, machineName, map[string]string{facts.RoleControlPlane: ""}, nil)
		addNode(ctx, "c-cp-deleted", map[string]string{facts.RoleControlPlane: ""}, nil)
		r.killEtcd()
		Expect(r.reconcileRestore(ctx, "back").Status.Phase).To(Equal(controlplanev1.EtcdRestoreJoining))
		Expect(apierrors.IsNotFound(testEnv.Client.Get(ctx, client.ObjectKey{Name: "c-cp-deleted"}, &corev1.Node{}))).To(BeTrue())
		r.makeWhole(ctx)
		Expect(r.reconcileRestore(ctx, "back").Status.Phase).To(Equal(controlplanev1.EtcdRestoreSucceeded))
	})

	It("is not initialized again while its API server answers", func(ctx context.Context) {
		r := newRig(ctx, external)
		r.useEnvAsWorkloadCluster(ctx)
		r.addRestore(ctx, "back", fromExternal())
		restore := r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreFailed))
		Expect(message(restore)).To(ContainSubstring("The API server of Cluster c answers"))
	})
})

var _ = Describe("A snapshot of another cluster", func() {
	It("is restored with the key of that cluster, or once a person accepts it", func(ctx context.Context) {
		r := newRig(ctx, nil)
		taken, _ := r.taken(ctx)
		cluster := &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "drill"},
			Spec: clusterv1.ClusterSpec{
				ControlPlaneRef:   clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "NovaControlPlane", Name: "drill"},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "NovaVSphereCluster", Name: "drill"},
			},
		}
		Expect(testEnv.Client.Create(ctx, cluster)).To(Succeed())
		cp := newControlPlane(r.namespace)
		cp.Name = "drill"
		cp.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))}
		Expect(testEnv.Client.Create(ctx, cp)).To(Succeed())
		cp.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		Expect(testEnv.Client.Status().Update(ctx, cp)).To(Succeed())
		add := func(name string, annotations map[string]string) {
			Expect(testEnv.Client.Create(ctx, &controlplanev1.NovaEtcdRestore{
				ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, Annotations: annotations},
				Spec: controlplanev1.NovaEtcdRestoreSpec{
					ControlPlaneRef: controlplanev1.NovaEtcdRestoreControlPlaneReference{Name: "drill"}, Source: fromCluster(clusterName),
				},
			})).To(Succeed())
		}

		add("drill", nil)
		restore := r.reconcileRestore(ctx, "drill")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing), message(restore))
		Expect(restore.Status.Snapshot).To(Equal(taken.Status.Etcd.LastSnapshot))
		r.download(ctx, "drill")
		Expect(testEnv.Client.Delete(ctx, restore)).To(Succeed())

		By("being in a management cluster that does not have the key")
		Expect(testEnv.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: clusterName + "-etcd"}})).To(Succeed())
		add("refused", nil)
		restore = r.reconcileRestore(ctx, "refused")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreFailed))
		Expect(message(restore)).To(ContainSubstring("is not signed with the key of cluster c"))
		r.now = r.now.Add(time.Second)
		add("accepted", map[string]string{controlplanev1.EtcdRestoreUnauthenticatedAnnotation: ""})
		restore = r.reconcileRestore(ctx, "accepted")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing), message(restore))
	})

	It("brings nodes of that cluster, which are deleted", func() {
		node := func(name, cluster string) corev1.Node {
			return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{clusterv1.ClusterNameAnnotation: cluster, clusterv1.MachineAnnotation: name}}}
		}
		nodes := []corev1.Node{node("a-worker", "a"), node("b-worker", "b"), node("else", "x"), {ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}}
		machines := []clusterv1.Machine{{ObjectMeta: metav1.ObjectMeta{Name: "b-worker"}}}
		Expect(orphanedNodes(nodes, machines, "b", "a")).To(Equal([]string{"a-worker"}))
	})
})
