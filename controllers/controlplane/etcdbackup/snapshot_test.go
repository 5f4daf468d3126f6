package etcdbackup

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/snapshots"
)

// snapshot reconciles once and returns the control plane as it is then.
func (r *rig) snapshot(ctx context.Context) (*controlplanev1.NovaControlPlane, ctrl.Result, error) {
	GinkgoHelper()
	reconciler := &SnapshotReconciler{Client: testEnv.Client, WorkloadClusters: r.clusters, Recorder: r.recorder, Now: func() time.Time { return r.now }}
	result, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(clusterName)})
	return r.controlPlane(ctx), result, err
}

// taken reconciles and expects no failure.
func (r *rig) taken(ctx context.Context) (*controlplanev1.NovaControlPlane, ctrl.Result) {
	GinkgoHelper()
	cp, result, err := r.snapshot(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(condition(cp)).To(HaveField("Status", metav1.ConditionTrue))
	return cp, result
}

func condition(cp *controlplanev1.NovaControlPlane) metav1.Condition {
	return ptr.Deref(conditions.Get(cp, controlplanev1.EtcdSnapshotsHealthyCondition), metav1.Condition{})
}

// objects lists the objects in the bucket of the rig's cluster.
func (r *rig) objects() []string {
	GinkgoHelper()
	all, err := server.Objects()
	Expect(err).NotTo(HaveOccurred())
	var mine []string
	for _, object := range all {
		if strings.HasPrefix(object, "nova/"+r.namespace+"/") {
			mine = append(mine, object)
		}
	}
	return mine
}

// listing is a client that also does something when it lists objects.
type listing struct {
	client.Client
	also func()
}

func (l listing) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	l.also()
	return l.Client.List(ctx, list, options...)
}

var _ = Describe("Snapshots", func() {
	It("are taken when they are due, and old ones removed", func(ctx context.Context) {
		r := newRig(ctx, nil)
		By("taking the first at once")
		cp, _ := r.taken(ctx)
		first := cp.Status.Etcd.LastSnapshot
		Expect(first.Name).To(Equal(r.now.UTC().Format("20060102t150405z")))
		Expect(first.Size).To(BeNumerically(">", 10_000))
		Expect(first.Revision).To(BeNumerically(">=", 1))
		Expect(first.DurationSeconds).To(BeNumerically(">=", 1))
		Expect(cp.Status.Etcd.Snapshots).To(HaveValue(BeEquivalentTo(1)))
		Expect(r.objects()).To(ConsistOf("nova/"+r.namespace+"/c/"+first.Name+".db", "nova/"+r.namespace+"/c/"+first.Name+".json"))
		Expect(r.recorder.Events).To(Receive(ContainSubstring("EtcdSnapshotTaken")))

		By("taking no other before its time, though the status was lost")
		r.now = r.now.Add(time.Hour)
		cp.Status.Etcd = controlplanev1.EtcdStatus{}
		Expect(testEnv.Client.Status().Update(ctx, cp)).To(Succeed())
		cp, result := r.taken(ctx)
		Expect(cp.Status.Etcd.LastSnapshot.Name).To(Equal(first.Name))
		Expect(result.RequeueAfter).To(Equal(time.Hour), "the bucket is looked into now and then")
		Expect(cp.Status.Etcd.NextSnapshotTime.Time).To(BeTemporally("~", r.now.Add(5*time.Hour), 2*time.Second))
		Expect(testutil.ToFloat64(nextSnapshotTime.WithLabelValues(cp.Namespace, cp.Name))).To(BeEquivalentTo(cp.Status.Etcd.NextSnapshotTime.Unix()))
		Expect(testutil.ToFloat64(lastSnapshotTime.WithLabelValues(cp.Namespace, cp.Name))).To(BeEquivalentTo(first.Time.Unix()))

		By("taking the next one when it is due")
		r.now = r.now.Add(5 * time.Hour)
		cp, _ = r.taken(ctx)
		Expect(cp.Status.Etcd.Snapshots).To(HaveValue(BeEquivalentTo(2)))

		By("taking one by hand, and keeping two")
		r.now = r.now.Add(time.Minute)
		cp.Annotations = map[string]string{controlplanev1.EtcdSnapshotAnnotation: ""}
		Expect(testEnv.Client.Update(ctx, cp)).To(Succeed())
		cp, _ = r.taken(ctx)
		Expect(cp.Annotations).NotTo(HaveKey(controlplanev1.EtcdSnapshotAnnotation))
		Expect(cp.Status.Etcd.LastSnapshot.Time.Time).To(BeTemporally("~", r.now, time.Second))
		Expect(cp.Status.Etcd.Snapshots).To(HaveValue(BeEquivalentTo(2)))
		Expect(r.objects()).To(HaveLen(4))
		Expect(r.objects()).NotTo(ContainElement(ContainSubstring(first.Name)))
	})

	It("keep a request that was made while another was served", func(ctx context.Context) {
		r := newRig(ctx, nil)
		cp, _ := r.taken(ctx)
		request := func(value string) {
			GinkgoHelper()
			patch := `{"metadata":{"annotations":{"` + controlplanev1.EtcdSnapshotAnnotation + `":"` + value + `"}}}`
			Expect(testEnv.Client.Patch(ctx, cp, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		}
		request("first")
		r.now = r.now.Add(time.Minute)
		// Machines are listed while a snapshot is taken.
		meanwhile := listing{Client: testEnv.Client, also: func() { request("second") }}
		reconciler := &SnapshotReconciler{Client: meanwhile, WorkloadClusters: r.clusters, Recorder: r.recorder, Now: func() time.Time { return r.now }}
		_, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(clusterName)})
		Expect(err).NotTo(HaveOccurred())
		cp = r.controlPlane(ctx)
		Expect(cp.Status.Etcd.Snapshots).To(HaveValue(BeEquivalentTo(2)))
		Expect(cp.Annotations).To(HaveKeyWithValue(controlplanev1.EtcdSnapshotAnnotation, "second"))
		r.now = r.now.Add(time.Minute)
		cp, _ = r.taken(ctx)
		Expect(cp.Annotations).NotTo(HaveKey(controlplanev1.EtcdSnapshotAnnotation))
		Expect(cp.Status.Etcd.LastSnapshot.Time.Time).To(BeTemporally("~", r.now, time.Second))
	})

	It("are not taken while they are suspended, except by annotation", func(ctx context.Context) {
		r := newRig(ctx, func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Etcd.Snapshots.Suspend = ptr.To(true) })
		cp, result, err := r.snapshot(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(condition(cp)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", controlplanev1.EtcdSnapshotSuspendedReason)))
		Expect(result.RequeueAfter).To(Equal(time.Hour))
		Expect(r.objects()).To(BeEmpty())
		cp.Annotations = map[string]string{controlplanev1.EtcdSnapshotAnnotation: ""}
		Expect(testEnv.Client.Update(ctx, cp)).To(Succeed())
		_, _, err = r.snapshot(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(r.objects()).To(HaveLen(2))
	})

	It("report why they fail, with the same message each time, and leave no objects", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.killEtcd()
		cp, _, err := r.snapshot(ctx)
		Expect(err).To(HaveOccurred())
		failed := condition(cp)
		Expect(failed).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", controlplanev1.EtcdSnapshotFailedReason),
			HaveField("Message", "No member of etcd answers through the API server")))
		Expect(cp.Status.Etcd.LastFailureTime).NotTo(BeNil())
		Expect(r.objects()).To(BeEmpty())
		Expect(r.recorder.Events).To(Receive(ContainSubstring("EtcdSnapshotFailed")))

		cp.Spec.Etcd.Snapshots.S3.CredentialsSecretRef.Name = "missing"
		Expect(testEnv.Client.Update(ctx, cp)).To(Succeed())
		for range 2 {
			cp, _, err = r.snapshot(ctx)
			Expect(err).To(HaveOccurred())
			Expect(condition(cp)).To(And(HaveField("Reason", controlplanev1.EtcdSnapshotStorageReason),
				HaveField("Message", "Secret missing of s3.credentialsSecretRef does not exist")))
		}
		Expect(r.recorder.Events).To(Receive(ContainSubstring("Secret missing")))
		Expect(r.recorder.Events).NotTo(Receive(), "a failure has one event")
	})

	It("list the bucket only when a snapshot may be due", func(ctx context.Context) {
		r := newRig(ctx, nil)
		reconciler := &SnapshotReconciler{Client: testEnv.Client, WorkloadClusters: r.clusters, Recorder: r.recorder, Now: func() time.Time { return r.now }}
		reconcile := func() (ctrl.Result, error) {
			return reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(clusterName)})
		}
		_, err := reconcile()
		Expect(err).NotTo(HaveOccurred())
		before := r.controlPlane(ctx)
		server.Stop()
		r.now = r.now.Add(10 * time.Minute)
		result, err := reconcile()
		Expect(server.Run(ctx)).To(Succeed())
		Expect(err).NotTo(HaveOccurred(), "no request is made")
		Expect(result.RequeueAfter).To(BeNumerically("~", 50*time.Minute, 2*time.Second))
		Expect(r.controlPlane(ctx).Status).To(Equal(before.Status))

		Expect(testEnv.Client.Delete(ctx, before)).To(Succeed())
		_, err = reconcile()
		Expect(err).NotTo(HaveOccurred())
		Expect(reconciler.idle.All()).To(BeEmpty(), "a deleted control plane leaves no entry")
	})

	It("wait until a new cluster is healthy", func(ctx context.Context) {
		r := newRig(ctx, nil)
		cp := r.controlPlane(ctx)
		conditions.Delete(cp, controlplanev1.EtcdClusterHealthyCondition)
		Expect(testEnv.Client.Status().Update(ctx, cp)).To(Succeed())
		cp, _, err := r.snapshot(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(condition(cp)).To(HaveField("Status", metav1.ConditionUnknown))
		Expect(r.objects()).To(BeEmpty())
	})

	It("wait for a server that is away", func(ctx context.Context) {
		r := newRig(ctx, nil)
		server.Stop()
		cp, _, err := r.snapshot(ctx)
		Expect(server.Run(ctx)).To(Succeed())
		Expect(err).To(HaveOccurred())
		Expect(condition(cp)).To(And(HaveField("Reason", controlplanev1.EtcdSnapshotStorageReason), HaveField("Message", ContainSubstring("no connection to it"))))
		cp, _ = r.taken(ctx)
		Expect(cp.Status.Etcd.LastFailureTime).To(BeNil())
	})

	It("are not taken during a restore", func(ctx context.Context) {
		r := newRig(ctx, nil)
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		Expect(initlock.BeginRestore(ctx, testEnv.Client, cluster, "r", "", r.now)).To(Succeed())
		cp, result, err := r.snapshot(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).NotTo(BeZero())
		Expect(condition(cp)).To(HaveField("Status", metav1.ConditionUnknown))
		Expect(r.objects()).To(BeEmpty())
	})

	It("keep the old snapshots if a control plane was recreated", func(ctx context.Context) {
		r := newRig(ctx, func(cp *controlplanev1.NovaControlPlane) {
			cp.Spec.Etcd.Snapshots.Retention = controlplanev1.EtcdSnapshotRetention{Days: 1}
		})
		r.taken(ctx)
		r.now = r.now.Add(6 * time.Hour)
		cp, _ := r.taken(ctx)
		last := cp.Status.Etcd.LastSnapshot.Name
		Expect(r.objects()).To(HaveLen(4))
		for len(r.recorder.Events) > 0 {
			<-r.recorder.Events
		}

		By("neither taking one of the new etcd nor removing those of the old")
		r.history = "second"
		r.now = r.now.Add(48 * time.Hour)
		for range 2 {
			var err error
			cp, _, err = r.snapshot(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(condition(cp)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", controlplanev1.EtcdSnapshotHistoryMismatchReason),
				HaveField("Message", ContainSubstring("Snapshot "+last+" in the bucket belongs to another control plane"))))
			Expect(cp.Status.Etcd.LastSnapshot.Name).To(Equal(last))
			Expect(cp.Status.Etcd.NextSnapshotTime.Time).To(BeTemporally("<", r.now), "it counts as missed")
			Expect(r.objects()).To(HaveLen(4))
		}
		Expect(r.recorder.Events).To(Receive(ContainSubstring("belongs to another control plane")))
		Expect(r.recorder.Events).NotTo(Receive(), "it has one event")

		By("continuing with the old one once it is restored")
		r.history = "first"
		cp, _ = r.taken(ctx)
		restored := cp.Status.Etcd.LastSnapshot.Name
		Expect(r.objects()).To(ConsistOf(ContainSubstring(restored+".db"), ContainSubstring(restored+".json")))

		By("continuing with the new one once a user requests a snapshot")
		r.history = "third"
		r.now = r.now.Add(48 * time.Hour)
		cp.Annotations = map[string]string{controlplanev1.EtcdSnapshotAnnotation: ""}
		Expect(testEnv.Client.Update(ctx, cp)).To(Succeed())
		r.taken(ctx)
		r.now = r.now.Add(48 * time.Hour)
		cp, _ = r.taken(ctx)
		Expect(cp.Status.Etcd.Snapshots).To(HaveValue(BeEquivalentTo(2)))
		Expect(r.objects()).To(ContainElement(ContainSubstring(restored+".db")), "the last snapshot of the old one may be the only copy of its data")
	})

	It("detect a recreated control plane by its revision if older manifests have no history", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.history = ""
		cp, _ := r.taken(ctx)
		r.history = "first"
		name := cp.Status.Etcd.LastSnapshot.Name
		place := r.place()
		var err error
		place.Key, err = signingKey(ctx, testEnv.Client, r.key(clusterName))
		Expect(err).NotTo(HaveOccurred())
		bucket, err := snapshots.Open(place)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(bucket.Close)
		revise := func(revision int64) {
			GinkgoHelper()
			manifest, err := bucket.Manifest(ctx, name)
			Expect(err).NotTo(HaveOccurred())
			Expect(manifest.History).To(BeEmpty())
			manifest.Revision = revision
			Expect(bucket.Commit(ctx, manifest)).To(Succeed())
		}
		revise(1000000)
		r.now = r.now.Add(6 * time.Hour)
		cp, _, err = r.snapshot(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(condition(cp)).To(HaveField("Reason", controlplanev1.EtcdSnapshotHistoryMismatchReason))
		revise(1)
		cp, _ = r.taken(ctx)
		Expect(cp.Status.Etcd.Snapshots).To(HaveValue(BeEquivalentTo(2)))
	})

	It("belong to a history that the workload cluster identifies", func(ctx context.Context) {
		r := newRig(ctx, nil)
		r.useEnvAsWorkloadCluster(ctx)
		namespace := &corev1.Namespace{}
		Eventually(testEnv.Client.Get).WithArguments(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace).Should(Succeed())
		Expect(NewWorkloadClusters(testEnv.Client, nil, nil).history(ctx, r.key(clusterName))).To(BeEquivalentTo(namespace.UID))
	})

	It("are refused once if spec.etcd.snapshots is not set", func(ctx context.Context) {
		r := newRig(ctx, func(cp *controlplanev1.NovaControlPlane) {
			cp.Spec.Etcd = controlplanev1.EtcdSpec{}
			cp.Annotations = map[string]string{controlplanev1.EtcdSnapshotAnnotation: "now"}
		})
		cp, _, err := r.snapshot(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(cp.Annotations).NotTo(HaveKey(controlplanev1.EtcdSnapshotAnnotation))
		Expect(r.recorder.Events).To(Receive(ContainSubstring("spec.etcd.snapshots is not set")))
		Expect(r.objects()).To(BeEmpty())
	})

	It("are not reported any more once they are not configured", func(ctx context.Context) {
		r := newRig(ctx, nil)
		cp, _ := r.taken(ctx)
		cp.Spec.Etcd = controlplanev1.EtcdSpec{}
		Expect(testEnv.Client.Update(ctx, cp)).To(Succeed())
		cp, _, err := r.snapshot(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(condition(cp)).To(BeZero())
		Expect(cp.Status.Etcd).To(BeZero())
		Expect(r.objects()).To(HaveLen(2), "existing snapshots stay")
	})
})

var _ = It("takes snapshots every six hours if the schedule is not set", func(ctx context.Context) {
	cp := newControlPlane("default")
	cp.Spec.Etcd.Snapshots.Schedule = ""
	Expect(testEnv.Client.Create(ctx, cp, client.DryRunAll)).To(Succeed())
	Expect(cp.Spec.Etcd.Snapshots.IsDefined()).To(BeTrue())
	last := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	Expect(snapshots.Next(cp.Spec.Etcd.Snapshots.GetSchedule(), last)).To(Equal(last.Add(6 * time.Hour)))
})

var _ = DescribeTable("Settings of etcd that are refused", func(ctx context.Context, change func(*controlplanev1.EtcdSpec), want string) {
	cp := newControlPlane("default")
	change(&cp.Spec.Etcd)
	Expect(testEnv.Client.Create(ctx, cp, client.DryRunAll)).To(MatchError(ContainSubstring(want)))
},
	Entry("plain text", func(e *controlplanev1.EtcdSpec) { e.Snapshots.S3.Endpoint = "http://s3.example.org" }, "it must be https"),
	Entry("bucket in the URL", func(e *controlplanev1.EtcdSpec) { e.Snapshots.S3.Endpoint = "https://s3.example.org/bucket" }, "the bucket is set in bucket"),
	Entry("schedule", func(e *controlplanev1.EtcdSpec) { e.Snapshots.Schedule = "sometimes" }, "five fields of cron"),
	Entry("prefix", func(e *controlplanev1.EtcdSpec) { e.Snapshots.S3.Prefix = "a/../b" }, "prefix must be words"),
	Entry("key without KMS", func(e *controlplanev1.EtcdSpec) { e.Snapshots.S3.KMSKeyID = "k" }, "kmsKeyID needs encryption KMS"),
	Entry("KMS without key", func(e *controlplanev1.EtcdSpec) { e.Snapshots.S3.Encryption = controlplanev1.S3EncryptionKMS }, "encryption KMS needs kmsKeyID"),
	Entry("snapshots of external etcd", func(e *controlplanev1.EtcdSpec) { e.External.Endpoints = []string{"https://etcd:2379"} }, "cannot be set beside external"),
	Entry("external in plain text", func(e *controlplanev1.EtcdSpec) {
		*e = controlplanev1.EtcdSpec{External: controlplanev1.ExternalEtcdSpec{Endpoints: []string{"http://etcd:2379"}}}
	}, "endpoints must be URLs"),
)

var _ = Describe("External etcd", func() {
	It("is decided when the control plane is created", func(ctx context.Context) {
		cp := newControlPlane("default")
		cp.Name = "external"
		cp.Spec.Etcd = controlplanev1.EtcdSpec{External: controlplanev1.ExternalEtcdSpec{Endpoints: []string{"https://etcd-0:2379"}}}
		Expect(testEnv.Client.Create(ctx, cp)).To(Succeed())
		cp.Spec.Etcd.External.Endpoints = []string{"https://etcd-0:2379", "https://etcd-1:2379"}
		Expect(testEnv.Client.Update(ctx, cp)).To(Succeed())
		cp.Spec.Etcd = controlplanev1.EtcdSpec{}
		Expect(testEnv.Client.Update(ctx, cp)).To(MatchError(ContainSubstring("cannot move between external etcd and its own")))
	})
})

var _ = DescribeTable("The member to take a snapshot of", func(members []etcd.Member, want string) {
	got, _ := selectMember(&etcd.Health{Members: members}, []string{"a", "b", "c"})
	Expect(got).To(Equal(want))
},
	Entry("a follower", []etcd.Member{{Name: "a", Answers: true, Leader: true}, {Name: "b", Answers: true}}, "b"),
	Entry("the leader, if no other member answers", []etcd.Member{{Name: "a", Answers: true, Leader: true}, {Name: "b"}}, "a"),
	Entry("no learner", []etcd.Member{{Name: "a", Answers: true, Leader: true}, {Name: "b", Answers: true, Learner: true}}, "a"),
	Entry("no member of the machines", []etcd.Member{{Name: "x", Answers: true}}, ""),
)
