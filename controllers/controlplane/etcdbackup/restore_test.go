package etcdbackup

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"io"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/snapshots"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// addRestore makes a restore.
func (r *rig) addRestore(ctx context.Context, name string, source controlplanev1.NovaEtcdRestoreSource) {
	GinkgoHelper()
	Expect(testEnv.Client.Create(ctx, &controlplanev1.NovaEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name},
		Spec: controlplanev1.NovaEtcdRestoreSpec{
			ControlPlaneRef: controlplanev1.NovaEtcdRestoreControlPlaneReference{Name: clusterName}, Source: source,
		},
	})).To(Succeed())
}

func fromSnapshot(name string) controlplanev1.NovaEtcdRestoreSource {
	return controlplanev1.NovaEtcdRestoreSource{Snapshot: controlplanev1.NovaEtcdRestoreSnapshot{Name: name}}
}

func fromMachine(name string) controlplanev1.NovaEtcdRestoreSource {
	return controlplanev1.NovaEtcdRestoreSource{Machine: controlplanev1.NovaEtcdRestoreMachine{Name: name}}
}

func fromExternal() controlplanev1.NovaEtcdRestoreSource {
	return controlplanev1.NovaEtcdRestoreSource{ExternalEtcd: &controlplanev1.NovaEtcdRestoreExternalEtcd{}}
}

func fromCluster(name string) controlplanev1.NovaEtcdRestoreSource {
	source := fromSnapshot(controlplanev1.LatestEtcdSnapshot)
	source.Snapshot.Cluster = name
	return source
}

// reconcileRestore reconciles once and returns the restore as it is then.
func (r *rig) reconcileRestore(ctx context.Context, name string) *controlplanev1.NovaEtcdRestore {
	GinkgoHelper()
	reconciler := &RestoreReconciler{Client: testEnv.Client, WorkloadClusters: r.clusters, Recorder: r.recorder, Now: func() time.Time { return r.now }}
	_, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(name)})
	Expect(err).NotTo(HaveOccurred())
	restore := &controlplanev1.NovaEtcdRestore{}
	Expect(testEnv.Client.Get(ctx, r.key(name), restore)).To(Succeed())
	return restore
}

// replace replaces a restore like "kubectl replace" with a manifest: everything
// that is not in the manifest is lost, except for the status.
func (r *rig) replace(ctx context.Context, name string) *controlplanev1.NovaEtcdRestore {
	GinkgoHelper()
	restore := &controlplanev1.NovaEtcdRestore{}
	Expect(testEnv.Client.Get(ctx, r.key(name), restore)).To(Succeed())
	restore.Annotations = nil
	Expect(testEnv.Client.Update(ctx, restore)).To(Succeed())
	return restore
}

func (r *rig) cluster(ctx context.Context) *clusterv1.Cluster {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
	return cluster
}

// download downloads the snapshot in the Secret of a restore and compares it.
func (r *rig) download(ctx context.Context, name string) {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(testEnv.Client.Get(ctx, r.key(name), secret)).To(Succeed())
	Expect(secret.Type).To(BeEquivalentTo(controlplanev1.EtcdRestoreSecretType))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(secret.Data[controlplanev1.EtcdRestoreCAKey])
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(string(secret.Data[controlplanev1.EtcdRestoreURLKey]))
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(response.Body.Close()).To(Succeed()) }()
	content, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	sum := sha256.Sum256(content)
	Expect(hex.EncodeToString(sum[:])).To(Equal(string(secret.Data[controlplanev1.EtcdRestoreSHA256Key])))
}

// useEnvAsWorkloadCluster makes the test's own API server the workload cluster's.
func (r *rig) useEnvAsWorkloadCluster(ctx context.Context) {
	GinkgoHelper()
	c := testEnv.Config
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: c.Host, CertificateAuthorityData: c.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(testEnv.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: clusterName + "-kubeconfig"}, Data: map[string][]byte{"value": kubeconfig},
	})).To(Succeed())
}

// addNode creates a node in the workload cluster.
func addNode(ctx context.Context, name string, labels, annotations map[string]string) {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
	Expect(testEnv.Client.Create(ctx, node)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(testEnv.Client.Delete(ctx, node))).To(Succeed())
	})
}

// makeWhole sets the conditions of a healthy machine and control plane.
func (r *rig) makeWhole(ctx context.Context) {
	GinkgoHelper()
	machine := &clusterv1.Machine{}
	Expect(testEnv.Client.Get(ctx, r.key(machineName), machine)).To(Succeed())
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"})
	Expect(testEnv.Client.Status().Update(ctx, machine)).To(Succeed())
	cp := r.controlPlane(ctx)
	for _, name := range []string{controlplanev1.AvailableCondition, controlplanev1.EtcdClusterHealthyCondition} {
		conditions.Set(cp, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: "Fine"})
	}
	Expect(testEnv.Client.Status().Update(ctx, cp)).To(Succeed())
}

var _ = Describe("Restores", func() {
	It("go from a snapshot to a whole control plane, once", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.useEnvAsWorkloadCluster(ctx)
		cp, _ := r.taken(ctx)
		r.addRestore(ctx, "back", fromSnapshot(controlplanev1.LatestEtcdSnapshot))

		By("finding the snapshot and writing its location")
		restore := r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
		Expect(restore.Status.Snapshot).To(Equal(cp.Status.Etcd.LastSnapshot))
		Expect(restore.OwnerReferences).To(ContainElement(HaveField("UID", cp.UID)))
		r.download(ctx, "back")

		By("renewing the URL before it ends")
		before := &corev1.Secret{}
		Expect(testEnv.Client.Get(ctx, r.key("back"), before)).To(Succeed())
		r.now = r.now.Add(timelimits.Hourly + time.Minute)
		r.reconcileRestore(ctx, "back")
		after := &corev1.Secret{}
		Expect(testEnv.Client.Get(ctx, r.key("back"), after)).To(Succeed())
		Expect(after.Data[controlplanev1.EtcdRestoreExpiresKey]).NotTo(Equal(before.Data[controlplanev1.EtcdRestoreExpiresKey]))

		By("reporting the machines to delete")
		Expect(initlock.BeginRestore(ctx, testEnv.Client, r.cluster(ctx), "back", "", r.now)).To(Succeed())
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreRemoving))
		Expect(conditions.GetMessage(restore, controlplanev1.EtcdRestoreReadyCondition)).To(ContainSubstring(machineName))

		By("waiting for the machine that restores")
		Expect(initlock.BeginRestore(ctx, testEnv.Client, r.cluster(ctx), "back", machineName, r.now)).To(Succeed())
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreRestoring))
		Expect(restore.Status.Machine).To(Equal(machineName))

		By("cleaning up once it works")
		controlPlane := map[string]string{facts.RoleControlPlane: ""}
		addNode(ctx, machineName, controlPlane, nil)
		addNode(ctx, "c-cp-deleted", controlPlane, nil)
		addNode(ctx, "c-worker-deleted", nil, map[string]string{clusterv1.ClusterNameAnnotation: clusterName, clusterv1.MachineAnnotation: "c-worker-deleted"})
		addNode(ctx, "foreign", nil, nil)
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreJoining))
		Expect(restore.Restored()).To(BeTrue())
		nodes := &corev1.NodeList{}
		Expect(testEnv.Client.List(ctx, nodes)).To(Succeed())
		Expect(nodes.Items).To(ConsistOf(HaveField("Name", machineName), HaveField("Name", "foreign")))
		lock, err := initlock.ObserveRestore(ctx, testEnv.Client, r.cluster(ctx))
		Expect(err).NotTo(HaveOccurred())
		Expect(lock.Name).To(BeEmpty(), "machines join as usual")

		By("completing once the control plane has all machines")
		Expect(r.reconcileRestore(ctx, "back").Status.Phase).To(Equal(controlplanev1.EtcdRestoreJoining))
		restore = r.replace(ctx, "back")
		Expect(restore.Restored()).To(BeTrue(), "replacing the object removed its annotations")
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreJoining))
		Expect(restore.Status.Machine).To(Equal(machineName))
		Expect(restore.Annotations).To(HaveKeyWithValue(controlplanev1.EtcdRestoredAnnotation, machineName))
		r.makeWhole(ctx)
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreSucceeded))
		Expect(restore.Status.CompletionTime).NotTo(BeNil())
		Expect(r.controlPlane(ctx).Annotations).To(HaveKeyWithValue(controlplanev1.EtcdSnapshotAnnotation, "back"), "the current data counts")
		Expect(apierrors.IsNotFound(testEnv.Client.Get(ctx, r.key("back"), &corev1.Secret{}))).To(BeTrue())

		By("never being carried out again, though the annotations are lost")
		restore = r.replace(ctx, "back")
		_, due := controlplanev1.NextEtcdRestore([]controlplanev1.NovaEtcdRestore{*restore}, clusterName)
		Expect(due).To(BeFalse())
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreSucceeded))
		Expect(restore.Annotations).To(HaveKeyWithValue(controlplanev1.EtcdRestoreFinishedAnnotation, string(controlplanev1.EtcdRestoreSucceeded)))

		By("never being carried out again, though the status is lost")
		restore.Status = controlplanev1.NovaEtcdRestoreStatus{}
		Expect(testEnv.Client.Status().Update(ctx, restore)).To(Succeed())
		Expect(r.reconcileRestore(ctx, "back").Status.Phase).To(Equal(controlplanev1.EtcdRestoreSucceeded))
		Expect(apierrors.IsNotFound(testEnv.Client.Get(ctx, r.key("back"), &corev1.Secret{}))).To(BeTrue())
	})

	It("begin with a snapshot of a member that lost the others", func(ctx context.Context) {
		r := newRig(ctx, nil, func(r *rig) { r.lonely = true })
		r.addRestore(ctx, "rescue", fromMachine(machineName))
		restore := r.reconcileRestore(ctx, "rescue")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
		Expect(restore.Status.Snapshot.Name).NotTo(BeEmpty())
		Expect(r.objects()).To(HaveLen(2))
		r.download(ctx, "rescue")
	})

	It("do not guess if the newest snapshot belongs to a recreated control plane", func(ctx context.Context) {
		r := newRig(ctx, nil)
		cp, _ := r.taken(ctx)
		old := cp.Status.Etcd.LastSnapshot.Name
		r.history = "second"
		r.now = r.now.Add(time.Minute)
		cp.Annotations = map[string]string{controlplanev1.EtcdSnapshotAnnotation: ""}
		Expect(testEnv.Client.Update(ctx, cp)).To(Succeed())
		cp, _ = r.taken(ctx)
		Expect(cp.Status.Etcd.Snapshots).To(HaveValue(BeEquivalentTo(2)))
		r.addRestore(ctx, "latest", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		restore := r.reconcileRestore(ctx, "latest")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreFailed))
		Expect(conditions.GetMessage(restore, controlplanev1.EtcdRestoreReadyCondition)).To(And(
			ContainSubstring(old), ContainSubstring(cp.Status.Etcd.LastSnapshot.Name), ContainSubstring("name the snapshot to restore")))
		r.addRestore(ctx, "named", fromSnapshot(old))
		restore = r.reconcileRestore(ctx, "named")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
		Expect(restore.Status.Snapshot.Name).To(Equal(old))
	})

	It("are refused from a snapshot that was not signed for the cluster", func(ctx context.Context) {
		r := newRig(ctx, nil)
		cp, _ := r.taken(ctx)
		name := cp.Status.Etcd.LastSnapshot.Name
		By("writing another manifest, as a writer of the bucket can")
		thief, err := snapshots.Open(r.place())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(thief.Close)
		forged, err := thief.Manifest(ctx, name)
		Expect(err).NotTo(HaveOccurred())
		forged.Revision += 1000
		Expect(thief.Commit(ctx, forged)).To(Succeed())

		r.addRestore(ctx, "refused", fromSnapshot(name))
		restore := r.reconcileRestore(ctx, "refused")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreFailed))
		Expect(conditions.Get(restore, controlplanev1.EtcdRestoreReadyCondition).Message).To(ContainSubstring("is not signed with the key of cluster " + clusterName))
		Expect(apierrors.IsNotFound(testEnv.Client.Get(ctx, r.key("refused"), &corev1.Secret{}))).To(BeTrue(), "no machine gets it")

		By("reporting it in the condition of snapshots, and taking none")
		r.now = r.now.Add(24 * time.Hour)
		cp, _, err = r.snapshot(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(condition(cp)).To(HaveField("Reason", controlplanev1.EtcdSnapshotNotAuthenticReason))
		Expect(r.objects()).To(HaveLen(2))

		By("restoring it once a user accepts it")
		r.addRestore(ctx, "accepted", fromSnapshot(name))
		accepted := &controlplanev1.NovaEtcdRestore{}
		Expect(testEnv.Client.Get(ctx, r.key("accepted"), accepted)).To(Succeed())
		accepted.Annotations = map[string]string{controlplanev1.EtcdRestoreUnauthenticatedAnnotation: ""}
		Expect(testEnv.Client.Update(ctx, accepted)).To(Succeed())
		Expect(r.reconcileRestore(ctx, "accepted").Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
		Expect(testEnv.Client.Get(ctx, r.key("accepted"), &corev1.Secret{})).To(Succeed())
	})

	It("continue without the status that a backup lacks", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.taken(ctx)
		r.addRestore(ctx, "back", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		restore := r.reconcileRestore(ctx, "back")
		Expect(initlock.BeginRestore(ctx, testEnv.Client, r.cluster(ctx), "back", machineName, r.now)).To(Succeed())
		restore.Status = controlplanev1.NovaEtcdRestoreStatus{}
		Expect(testEnv.Client.Status().Update(ctx, restore)).To(Succeed())
		cp := r.controlPlane(ctx)
		cp.Status = controlplanev1.NovaControlPlaneStatus{}
		Expect(testEnv.Client.Status().Update(ctx, cp)).To(Succeed())
		machine := &clusterv1.Machine{}
		Expect(testEnv.Client.Get(ctx, r.key(machineName), machine)).To(Succeed())
		machine.Status.NodeRef = clusterv1.MachineNodeReference{}
		Expect(testEnv.Client.Status().Update(ctx, machine)).To(Succeed())
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreRestoring))
		Expect(restore.Status.Snapshot).To(BeZero(), "the Secret does not hold all of it")
		r.now = r.now.Add(2 * timelimits.Hourly)
		restore = r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Snapshot.Name).NotTo(BeEmpty())
		Expect(conditions.GetMessage(restore, controlplanev1.EtcdRestoreReadyCondition)).To(
			Equal("Waiting for machine " + machineName + " to restore the snapshot and initialize the control plane"))
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreRestoring))
	})

	It("wait until the Secret of a deleted restore with the same name is deleted", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.taken(ctx)
		r.addRestore(ctx, "back", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		Expect(testEnv.Client.Delete(ctx, r.reconcileRestore(ctx, "back"))).To(Succeed())
		r.addRestore(ctx, "back", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		restore := r.reconcileRestore(ctx, "back")
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestorePending))
		Expect(restore.Status.Snapshot.Name).To(BeEmpty())
		Expect(conditions.GetMessage(restore, controlplanev1.EtcdRestoreReadyCondition)).To(
			Equal("Waiting for the Secret of a former NovaEtcdRestore back to be deleted with it"))
		// There is no garbage collector here.
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "back"}}
		Expect(testEnv.Client.Delete(ctx, secret)).To(Succeed())
		Expect(r.reconcileRestore(ctx, "back").Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	})

	It("take their turns", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.taken(ctx)
		r.addRestore(ctx, "a-first", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		r.addRestore(ctx, "b-second", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		second := r.reconcileRestore(ctx, "b-second")
		Expect(second.Status.Phase).To(Equal(controlplanev1.EtcdRestorePending))
		Expect(conditions.GetMessage(second, controlplanev1.EtcdRestoreReadyCondition)).To(ContainSubstring("a-first"))
		Expect(testEnv.Client.Delete(ctx, r.reconcileRestore(ctx, "a-first"))).To(Succeed())
		Expect(r.reconcileRestore(ctx, "b-second").Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
	})

	It("wait while they are paused, and wake up by themselves", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.taken(ctx)
		reconciler := &RestoreReconciler{Client: testEnv.Client, WorkloadClusters: r.clusters, Recorder: r.recorder, Now: func() time.Time { return r.now }}
		reconcile := func() (ctrl.Result, *controlplanev1.NovaEtcdRestore) {
			result, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key("back")})
			Expect(err).NotTo(HaveOccurred())
			restore := &controlplanev1.NovaEtcdRestore{}
			Expect(testEnv.Client.Get(ctx, r.key("back"), restore)).To(Succeed())
			return result, restore
		}
		pause := func(paused bool) {
			cluster := r.cluster(ctx)
			cluster.Spec.Paused = &paused
			Expect(testEnv.Client.Update(ctx, cluster)).To(Succeed())
		}
		pause(true)
		r.addRestore(ctx, "back", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		result, restore := reconcile()
		Expect(result.RequeueAfter).To(Equal(timelimits.LongPoll))
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestorePending))
		Expect(conditions.GetMessage(restore, controlplanev1.EtcdRestoreReadyCondition)).To(Equal("Waiting because Cluster c is paused"))

		By("being as far as it was while it is paused half-way")
		pause(false)
		_, restore = reconcile()
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
		cp := r.controlPlane(ctx)
		cp.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		Expect(testEnv.Client.Update(ctx, cp)).To(Succeed())
		result, restore = reconcile()
		Expect(result.RequeueAfter).To(Equal(timelimits.LongPoll))
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
		Expect(conditions.GetMessage(restore, controlplanev1.EtcdRestoreReadyCondition)).To(Equal("Waiting because NovaControlPlane c is paused"))

		By("keeping the status of a completed restore, and setting it again after a move lost it")
		restore.Annotations = map[string]string{controlplanev1.EtcdRestoreFinishedAnnotation: string(controlplanev1.EtcdRestoreSucceeded)}
		Expect(testEnv.Client.Update(ctx, restore)).To(Succeed())
		restore.Status = controlplanev1.NovaEtcdRestoreStatus{}
		Expect(testEnv.Client.Status().Update(ctx, restore)).To(Succeed())
		result, restore = reconcile()
		Expect(result.RequeueAfter).To(Equal(timelimits.LongPoll))
		Expect(restore.Status).To(BeZero())
		cp.Annotations = nil
		Expect(testEnv.Client.Update(ctx, cp)).To(Succeed())
		_, restore = reconcile()
		Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreSucceeded))
	})

	It("report the reason while the bucket is unreachable", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.taken(ctx)
		r.addRestore(ctx, "back", fromSnapshot(controlplanev1.LatestEtcdSnapshot))
		server.Stop()
		reconciler := &RestoreReconciler{Client: testEnv.Client, WorkloadClusters: r.clusters, Recorder: r.recorder}
		_, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key("back")})
		Expect(server.Run(ctx)).To(Succeed())
		Expect(err).To(HaveOccurred())
		restore := &controlplanev1.NovaEtcdRestore{}
		Expect(testEnv.Client.Get(ctx, r.key("back"), restore)).To(Succeed())
		Expect(conditions.GetReason(restore, controlplanev1.EtcdRestoreReadyCondition)).To(Equal(controlplanev1.EtcdRestoreSourceReason))
		Expect(restore.Finished()).To(BeEmpty())
		Expect(r.reconcileRestore(ctx, "back").Status.Phase).To(Equal(controlplanev1.EtcdRestorePreparing))
	})
})

var _ = DescribeTable("Restores that are refused", func(ctx context.Context, change func(*controlplanev1.NovaControlPlane), source controlplanev1.NovaEtcdRestoreSource, want string) {
	r := newRig(ctx, change)
	r.addRestore(ctx, "back", source)
	restore := r.reconcileRestore(ctx, "back")
	Expect(restore.Status.Phase).To(Equal(controlplanev1.EtcdRestoreFailed))
	Expect(conditions.GetMessage(restore, controlplanev1.EtcdRestoreReadyCondition)).To(ContainSubstring(want))
	Expect(apierrors.IsNotFound(testEnv.Client.Get(ctx, r.key("back"), &corev1.Secret{}))).To(BeTrue())
	again := r.reconcileRestore(ctx, "back")
	Expect(conditions.GetMessage(again, controlplanev1.EtcdRestoreReadyCondition)).To(ContainSubstring(want), "the reason is kept")
},
	Entry("nothing to restore", nil, fromSnapshot(controlplanev1.LatestEtcdSnapshot), "There is no snapshot of cluster c"),
	Entry("a missing snapshot", nil, fromSnapshot("20200101t000000z"), "There is no snapshot 20200101t000000z"),
	Entry("a missing machine", nil, fromMachine("missing"), "There is no control plane Machine missing"),
	Entry("a member that has its quorum", nil, fromMachine(machineName), "its quorum is not lost"),
	Entry("no bucket", func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Etcd = controlplanev1.EtcdSpec{} },
		fromSnapshot(controlplanev1.LatestEtcdSnapshot), "set the bucket of the snapshots"),
	Entry("external etcd", func(cp *controlplanev1.NovaControlPlane) {
		cp.Spec.Etcd = controlplanev1.EtcdSpec{External: controlplanev1.ExternalEtcdSpec{Endpoints: []string{"https://etcd:2379"}}}
	}, fromSnapshot(controlplanev1.LatestEtcdSnapshot), "create a NovaEtcdRestore with source.externalEtcd"),
	Entry("external etcd where there is none", nil, fromExternal(), "runs on its machines"),
	Entry("a snapshot of another cluster that is not there", nil, fromCluster("other"), "There is no snapshot of cluster other"),
)

var _ = Describe("A restore's spec", func() {
	It("names exactly one source and never changes", func(ctx context.Context) {
		restoring := func(source controlplanev1.NovaEtcdRestoreSource) *controlplanev1.NovaEtcdRestore {
			return &controlplanev1.NovaEtcdRestore{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "r-"},
				Spec:       controlplanev1.NovaEtcdRestoreSpec{ControlPlaneRef: controlplanev1.NovaEtcdRestoreControlPlaneReference{Name: "x"}, Source: source},
			}
		}
		both := fromSnapshot("a")
		both.Machine.Name = "b"
		Expect(testEnv.Client.Create(ctx, restoring(both))).To(MatchError(ContainSubstring("exactly one of snapshot, machine and externalEtcd")))
		restore := restoring(fromSnapshot("a"))
		Expect(testEnv.Client.Create(ctx, restore)).To(Succeed())
		restore.Spec.Source = fromSnapshot("b")
		Expect(testEnv.Client.Update(ctx, restore)).To(MatchError(ContainSubstring("only fencing can be changed")))
		restore.Spec.Source = fromSnapshot("a")
		restore.Spec.S3 = newS3()
		Expect(testEnv.Client.Update(ctx, restore)).To(MatchError(ContainSubstring("only fencing can be changed")))
		restore.Spec.S3 = controlplanev1.S3Spec{}
		restore.Spec.Fencing.Machines = []string{"a", "a"}
		Expect(testEnv.Client.Update(ctx, restore)).To(MatchError(ContainSubstring("Duplicate value")))
		restore.Spec.Fencing.Machines = []string{"a", "b"}
		Expect(testEnv.Client.Update(ctx, restore)).To(Succeed())

		external := restoring(fromExternal())
		external.Spec.S3 = newS3()
		Expect(testEnv.Client.Create(ctx, external)).To(MatchError(ContainSubstring("nothing is read from a bucket")))
		survivor := restoring(fromMachine("a"))
		survivor.Spec.Fencing.Machines = []string{"a"}
		Expect(testEnv.Client.Create(ctx, survivor)).To(MatchError(ContainSubstring("a snapshot is taken of its member")))
	})
})
