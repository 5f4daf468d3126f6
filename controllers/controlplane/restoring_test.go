package controlplane

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

// reconcileTimes reconciles several times, as the requeues of a restore would.
func (r *rig) reconcileTimes(ctx context.Context, reconciler *Reconciler, times int) {
	GinkgoHelper()
	for range times {
		_, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(controlPlaneName)})
		Expect(err).NotTo(HaveOccurred())
	}
}

// restoring reads the restore in the init lock.
func (r *rig) restoring(ctx context.Context) initlock.Restore {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
	restore, err := initlock.ObserveRestore(ctx, testEnv.Client, cluster)
	Expect(err).NotTo(HaveOccurred())
	return restore
}

// addRestore creates a restore.
func (r *rig) addRestore(ctx context.Context) *controlplanev1.NovaEtcdRestore {
	GinkgoHelper()
	restore := &controlplanev1.NovaEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "back"},
		Spec: controlplanev1.NovaEtcdRestoreSpec{
			ControlPlaneRef: controlplanev1.NovaEtcdRestoreControlPlaneReference{Name: controlPlaneName},
			Source:          controlplanev1.NovaEtcdRestoreSource{Snapshot: controlplanev1.NovaEtcdRestoreSnapshot{Name: "Latest"}},
		},
	}
	Expect(testEnv.Client.Create(ctx, restore)).To(Succeed())
	return restore
}

// prepare creates the Secret of a restore with a verified snapshot.
func (r *rig) prepare(ctx context.Context, restore *controlplanev1.NovaEtcdRestore) {
	GinkgoHelper()
	Expect(testEnv.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.namespace, Name: restore.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(restore, controlplanev1.GroupVersion.WithKind("NovaEtcdRestore"))},
		},
		Type: controlplanev1.EtcdRestoreSecretType,
	})).To(Succeed())
}

// beginRestore restores a control plane's etcd until the machine that restores
// exists.
func (r *rig) beginRestore(ctx context.Context, reconciler *Reconciler) clusterv1.Machine {
	GinkgoHelper()
	r.reconcileUntilIdle(ctx, reconciler)
	cluster := &clusterv1.Cluster{}
	Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
	Expect(initlock.MarkInitialized(ctx, testEnv.Client, cluster)).To(Succeed())
	r.prepare(ctx, r.addRestore(ctx))
	r.reconcileTimes(ctx, reconciler, 4)
	made := r.expectMachines(ctx, 1)
	Expect(r.restoring(ctx).Machine).To(Equal(made[0].Name))
	return made[0]
}

// setConditions sets conditions of a machine.
func (r *rig) setConditions(ctx context.Context, machine clusterv1.Machine, of ...metav1.Condition) clusterv1.Machine {
	GinkgoHelper()
	for _, c := range of {
		conditions.Set(&machine, c)
	}
	Expect(testEnv.Client.Status().Update(ctx, &machine)).To(Succeed())
	return machine
}

var _ = Describe("A control plane whose etcd is restored", func() {
	It("deletes all machines for one that restores, and blocks all other steps", func(ctx context.Context) {
		r := newRig(ctx, "", nil)
		workloadCluster := &fakeClusters{Cluster: facts.Cluster{Problem: "The API server does not answer"}}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		before := r.expectMachines(ctx, 3)
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		Expect(initlock.MarkInitialized(ctx, testEnv.Client, cluster)).To(Succeed())
		// A finalizer holds a machine: the restore waits for it, and no other
		// machine is created.
		held := before[0].DeepCopy()
		held.Finalizers = []string{"test.example.com/held"}
		Expect(testEnv.Client.Patch(ctx, held, client.MergeFrom(&before[0]))).To(Succeed())

		restore := r.addRestore(ctx)
		r.reconcileTimes(ctx, reconciler, 3)
		Expect(r.restoring(ctx).Name).To(BeEmpty(), "nothing changes before the snapshot is known to be whole")
		r.expectMachines(ctx, 3)

		// The Secret of an earlier restore with this name does not count.
		former := restore.DeepCopy()
		former.UID = "former"
		r.prepare(ctx, former)
		r.reconcileTimes(ctx, reconciler, 2)
		Expect(r.restoring(ctx).Name).To(BeEmpty())
		Expect(testEnv.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: restore.Name}})).To(Succeed())

		r.prepare(ctx, restore)
		r.reconcileTimes(ctx, reconciler, 4)
		Expect(r.restoring(ctx)).To(And(HaveField("Name", "back"), HaveField("Machine", BeEmpty())))
		left, err := r.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(left).To(ConsistOf(And(HaveField("Name", held.Name), HaveField("DeletionTimestamp", Not(BeNil())))))
		Expect(left[0].Annotations).To(And(Not(HaveKey(controlplanev1.MachineHookAnnotation)), HaveKey(clusterv1.ExcludeNodeDrainingAnnotation)))
		available, err := r.condition(ctx, controlplanev1.AvailableCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(available).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("Waiting for machines to be deleted before etcd is restored: "+held.Name))))

		released := left[0].DeepCopy()
		released.Finalizers = nil
		Expect(testEnv.Client.Patch(ctx, released, client.MergeFrom(&left[0]))).To(Succeed())
		r.reconcileTimes(ctx, reconciler, 4)
		made := r.expectMachines(ctx, 1)
		Expect(r.restoring(ctx).Machine).To(Equal(made[0].Name))
		order, err := initlock.OrderFor(ctx, testEnv.Client, cluster, made[0].Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(order).To(Equal(initlock.Initialize))

		// After the user deletes the machine another one is created.
		Expect(testEnv.Client.Delete(ctx, &made[0])).To(Succeed())
		r.reconcileTimes(ctx, reconciler, 4)
		again := r.expectMachines(ctx, 1)
		Expect(again[0].Name).NotTo(Equal(made[0].Name))
		Expect(r.restoring(ctx).Machine).To(Equal(again[0].Name))

		// A restore that is deleted early changes nothing.
		Expect(testEnv.Client.Delete(ctx, restore)).To(Succeed())
		r.reconcileTimes(ctx, reconciler, 3)
		Expect(r.expectMachines(ctx, 1)[0].Name).To(Equal(again[0].Name))
		available, err = r.condition(ctx, controlplanev1.AvailableCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(available.Message).To(ContainSubstring("create another NovaEtcdRestore"))
	})

	It("does not wait for a fenced machine, and continues without it", func(ctx context.Context) {
		r := newRig(ctx, "", nil)
		workloadCluster := &fakeClusters{Cluster: facts.Cluster{Problem: "The API server does not answer"}}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		Expect(initlock.MarkInitialized(ctx, testEnv.Client, cluster)).To(Succeed())
		all := r.expectMachines(ctx, 3)
		for i := range all[:2] {
			held := all[i].DeepCopy()
			held.Finalizers = []string{"test.example.com/held"}
			Expect(testEnv.Client.Patch(ctx, held, client.MergeFrom(&all[i]))).To(Succeed())
		}
		dead, slow := all[0].Name, all[1].Name
		restore := r.addRestore(ctx)
		restore.Spec.Fencing.Machines = []string{dead}
		Expect(testEnv.Client.Update(ctx, restore)).To(Succeed(), "fencing may change during the restore")
		r.prepare(ctx, restore)
		r.reconcileTimes(ctx, reconciler, 5)
		available, err := r.condition(ctx, controlplanev1.AvailableCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(available.Message).To(HaveSuffix("Waiting for machines to be deleted before etcd is restored: "+slow), "only those that are named are not waited for")
		Expect(r.restoring(ctx).Machine).To(BeEmpty())

		left := &clusterv1.Machine{}
		Expect(testEnv.Client.Get(ctx, r.key(slow), left)).To(Succeed())
		left.Finalizers = nil
		Expect(testEnv.Client.Update(ctx, left)).To(Succeed())
		r.reconcileTimes(ctx, reconciler, 4)
		restorer := r.restoring(ctx).Machine
		Expect(restorer).NotTo(BeEmpty())
		machines, _, _, err := r.names(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(machines).To(ConsistOf(dead, restorer))

		By("joining further machines while the dead one cannot be deleted")
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(restore), restore)).To(Succeed())
		restore.Annotations = map[string]string{controlplanev1.EtcdRestoredAnnotation: restorer}
		Expect(testEnv.Client.Update(ctx, restore)).To(Succeed())
		Expect(initlock.EndRestore(ctx, testEnv.Client, cluster, restore.Name)).To(Succeed())
		workloadCluster.Cluster = facts.Cluster{
			Answers: true, KubeadmConfig: true, Nodes: []facts.Node{{Name: restorer, Machine: restorer, ControlPlane: true, Ready: true}},
			Etcd: &etcd.Health{Members: []etcd.Member{{ID: 1, Name: restorer, Answers: true, Leader: true}}},
		}
		r.reconcileUntilIdle(ctx, reconciler)
		machines, _, _, err = r.names(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(machines).To(And(HaveLen(4), ContainElements(dead, restorer)))
		controlPlane, err := r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(controlPlane.Status.Replicas).To(HaveValue(BeEquivalentTo(3)))
	})

	It("creates no machine while an API server answers", func(ctx context.Context) {
		r := newRig(ctx, "", nil)
		workloadCluster := &fakeClusters{Cluster: facts.Cluster{
			Answers: true, KubeadmConfig: true, Nodes: []facts.Node{{Name: "unknown-node", ControlPlane: true, APIServer: "v1.36.3"}},
			Etcd: &etcd.Health{Members: []etcd.Member{{ID: 1, Name: "unknown-node", Answers: true, Leader: true}}},
		}}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		Expect(initlock.MarkInitialized(ctx, testEnv.Client, cluster)).To(Succeed())
		r.prepare(ctx, r.addRestore(ctx))
		r.reconcileTimes(ctx, reconciler, 6)
		Expect(r.machines(ctx)).To(BeEmpty(), "all known machines are deleted, and none is created")
		available, err := r.condition(ctx, controlplanev1.AvailableCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(available.Message).To(And(ContainSubstring("The API server still answers"), ContainSubstring("unknown-node")))

		workloadCluster.Cluster = facts.Cluster{Problem: "The API server does not answer"}
		r.reconcileTimes(ctx, reconciler, 3)
		Expect(r.restoring(ctx).Machine).To(Equal(r.expectMachines(ctx, 1)[0].Name))
	})

	It("reports the restore while an object cannot be kept in sync", func(ctx context.Context) {
		r := newRig(ctx, "", nil)
		workloadCluster := &fakeClusters{Cluster: facts.Cluster{Problem: "The API server does not answer"}}
		reconciler := direct(testEnv.Config, workloadCluster)
		done := func(a plan.Action) float64 { return testutil.ToFloat64(actionsDone.WithLabelValues(string(a))) }
		actions := []plan.Action{plan.BeginRestore, plan.DeleteForRestore, plan.CreateForRestore}
		before := []float64{done(actions[0]), done(actions[1]), done(actions[2])}
		r.beginRestore(ctx, reconciler)
		for i, action := range actions {
			Expect(done(action)).To(Equal(before[i]+1), string(action))
		}
		r.reconcileTimes(ctx, reconciler, 2)
		waiting, err := r.condition(ctx, controlplanev1.AvailableCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(waiting.Message).To(ContainSubstring("to restore etcd"))

		_, err = direct(refuse(http.MethodGet, "/novavspheremachinetemplates/"), workloadCluster).Reconcile(ctx, requestFor(r))
		Expect(err).To(MatchError(ContainSubstring(errRefused.Error())))
		Expect(r.condition(ctx, controlplanev1.AvailableCondition)()).To(Equal(waiting))
	})

	It("keeps certificates while restores cannot be read, and changes no machine", func(ctx context.Context) {
		r := newRig(ctx, "", nil)
		unreadable := direct(refuse(http.MethodGet, "/novaetcdrestores"), &fakeClusters{})
		for range 3 {
			_, err := unreadable.Reconcile(ctx, requestFor(r))
			if err != nil {
				Expect(err).To(MatchError(ContainSubstring(errRefused.Error())))
			}
		}
		Expect(r.condition(ctx, controlplanev1.CertificatesAvailableCondition)()).To(HaveField("Status", metav1.ConditionTrue))
		Expect(r.machines(ctx)).To(BeEmpty())

		By("being available nevertheless")
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		machines := r.expectMachines(ctx, 3)
		running := &fakeClusters{Cluster: facts.Cluster{
			Answers: true, KubeadmConfig: true, EtcdProblem: "not queried",
			Nodes: []facts.Node{{Name: machines[0].Name, Machine: machines[0].Name, ControlPlane: true, Ready: true}},
		}}
		r.reconcileTimes(ctx, direct(testEnv.Config, running), 2)
		available, err := r.condition(ctx, controlplanev1.AvailableCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(available.Status).To(Equal(metav1.ConditionTrue))
		Expect(testEnv.Client.Delete(ctx, &machines[2])).To(Succeed())
		_, err = direct(refuse(http.MethodGet, "/novaetcdrestores"), running).Reconcile(ctx, requestFor(r))
		Expect(err).To(MatchError(ContainSubstring(errRefused.Error())))
		Expect(r.condition(ctx, controlplanev1.AvailableCondition)()).To(Equal(available))
		Expect(r.machines(ctx)).To(HaveLen(2))
		Expect(r.condition(ctx, controlplanev1.ScalingUpCondition)()).To(HaveField("Message", ContainSubstring("NovaEtcdRestores cannot be read")))
	})

	It("keeps the machine that restores as long as it may be the one that answers", func(ctx context.Context) {
		r := newRig(ctx, "", nil)
		unreachable := facts.Cluster{Problem: "The API server does not answer"}
		workloadCluster := &fakeClusters{Cluster: unreachable}
		reconciler := direct(testEnv.Config, workloadCluster)
		// Our clock is ahead of the API server's.
		ahead := time.Hour
		reconciler.Now = func() time.Time { return time.Now().Add(ahead) }
		restorer := r.beginRestore(ctx, reconciler)
		r.reconcileTimes(ctx, reconciler, 4)
		Expect(r.expectMachines(ctx, 1)[0].Name).To(Equal(restorer.Name))

		By("being flagged before its node was seen")
		restorer = r.setConditions(ctx, restorer,
			scopetest.Condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "NodeStartupTimeout"),
			scopetest.Condition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "WaitingForRemediation"))
		ahead += timelimits.Grace + time.Minute
		r.reconcileTimes(ctx, reconciler, 3)
		Expect(r.expectMachines(ctx, 1)[0].Name).To(Equal(restorer.Name), "how long it may take is the restore's to know")

		By("having come back from that")
		restorer = r.setConditions(ctx, restorer, scopetest.Condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, "Healthy"))
		r.reconcileTimes(ctx, reconciler, 3)
		Expect(r.expectMachines(ctx, 1)[0].Name).To(Equal(restorer.Name))

		By("not being seen as a node for long")
		ahead += timelimits.RestoreTimeout
		workloadCluster.Cluster = facts.Cluster{Problem: "The API server answers too slowly", Alive: true}
		r.reconcileTimes(ctx, reconciler, 3)
		Expect(r.expectMachines(ctx, 1)[0].Name).To(Equal(restorer.Name))
		available, err := r.condition(ctx, controlplanev1.AvailableCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(available.Message).To(ContainSubstring("but the API server answers, so it is kept"))
		workloadCluster.Cluster = facts.Cluster{Problem: unreachable.Problem, Pending: true}
		r.reconcileTimes(ctx, reconciler, 3)
		Expect(r.expectMachines(ctx, 1)[0].Name).To(Equal(restorer.Name))

		By("exceeding the timeout while the API server does not answer")
		workloadCluster.Cluster = unreachable
		r.reconcileTimes(ctx, reconciler, 4)
		next := r.expectMachines(ctx, 1)[0]
		Expect(next.Name).NotTo(Equal(restorer.Name))

		By("failing for good")
		r.setConditions(ctx, next, scopetest.Condition(clusterv1.MachineInfrastructureReadyCondition, metav1.ConditionFalse, input.BootstrapFailed))
		r.reconcileTimes(ctx, reconciler, 4)
		Expect(r.expectMachines(ctx, 1)[0].Name).To(Equal(next.Name), "there is a pause between tries")
		ahead += timelimits.Grace + time.Minute
		r.reconcileTimes(ctx, reconciler, 4)
		Expect(r.expectMachines(ctx, 1)[0].Name).NotTo(Equal(next.Name))
	})

	It("knows that it was initialized without the status that a backup lacks", func(ctx context.Context) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{Cluster: facts.Cluster{Problem: "The API server does not answer"}})
		restorer := r.beginRestore(ctx, reconciler)
		controlPlane, err := r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		controlPlane.Status = controlplanev1.NovaControlPlaneStatus{}
		Expect(testEnv.Client.Status().Update(ctx, controlPlane)).To(Succeed())
		ca := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: clusterName + "-ca"}}
		Expect(testEnv.Client.Delete(ctx, ca)).To(Succeed())
		Eventually(func() error {
			_, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(controlPlaneName)})
			return err
		}).Should(MatchError(ContainSubstring("checking certificates")), "nodes would not trust a new CA")
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		Expect(initlock.OrderFor(ctx, testEnv.Client, cluster, restorer.Name)).To(Equal(initlock.Initialize))
		controlPlane, err = r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(controlPlane.Status.Initialization.ControlPlaneInitialized).To(HaveValue(BeTrue()))
	})

	It("continues once the machine restored etcd although the restore was deleted", func(ctx context.Context) {
		r := newRig(ctx, "", nil)
		workloadCluster := &fakeClusters{Cluster: facts.Cluster{Problem: "The API server does not answer"}}
		reconciler := direct(testEnv.Config, workloadCluster)
		restorer := r.beginRestore(ctx, reconciler)
		Expect(testEnv.Client.Delete(ctx, &controlplanev1.NovaEtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "back"}})).To(Succeed())
		r.reconcileTimes(ctx, reconciler, 2)
		available, err := r.condition(ctx, controlplanev1.AvailableCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(available.Message).To(ContainSubstring("waiting for machine " + restorer.Name + " to restore etcd"))

		By("the API server answering, and kubeadm not being through")
		workloadCluster.Cluster = facts.Cluster{
			Answers: true, KubeadmConfig: true, Nodes: []facts.Node{{Name: restorer.Name}},
			Etcd: &etcd.Health{Members: []etcd.Member{{ID: 1, Name: restorer.Name, Answers: true, Leader: true}}},
		}
		r.reconcileTimes(ctx, reconciler, 2)
		Expect(r.restoring(ctx).Name).To(Equal("back"))

		By("being through")
		workloadCluster.Nodes[0].ControlPlane = true
		r.reconcileTimes(ctx, reconciler, 1)
		Expect(r.restoring(ctx).Name).To(BeEmpty())
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		Expect(initlock.OrderFor(ctx, testEnv.Client, cluster, "another")).To(Equal(initlock.Join))
		r.reconcileTimes(ctx, reconciler, 1)
		available, err = r.condition(ctx, controlplanev1.AvailableCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(available.Message).NotTo(ContainSubstring("NovaEtcdRestore"))
	})

	It("waits for the Secrets of external etcd", func(ctx context.Context) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Etcd.External.Endpoints = []string{"https://127.0.0.1:1"}
		})
		r.reconcileUntilIdle(ctx, direct(testEnv.Config, &fakeClusters{}))
		available, err := r.condition(ctx, controlplanev1.AvailableCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(available.Message).To(Equal("Waiting for Secret c-etcd, which external etcd needs"))
		list := &corev1.SecretList{}
		Expect(testEnv.Client.List(ctx, list, client.InNamespace(r.namespace))).To(Succeed())
		Expect(list.Items).To(BeEmpty(), "no CA is created")
	})
})
