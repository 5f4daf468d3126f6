package controlplane

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

func requestFor(r *rig) ctrl.Request { return ctrl.Request{NamespacedName: r.key(controlPlaneName)} }

var _ = Describe("Deleting a control plane", func() {
	deleteIt := func(ctx context.Context, r *rig) {
		GinkgoHelper()
		Expect(testEnv.Client.Delete(ctx, newControlPlane(r.namespace))).To(Succeed())
	}
	gone := func(ctx context.Context, r *rig) func() bool {
		return func() bool {
			_, err := r.controlPlane(ctx)
			return apierrors.IsNotFound(err)
		}
	}
	// hold blocks the deletion of machines until release, as core does while
	// their VMs are deleted.
	hold := func(ctx context.Context, machines []clusterv1.Machine) {
		GinkgoHelper()
		for i := range machines {
			// The reconciler may write at the same time.
			Eventually(func() error {
				if err := testEnv.Client.Get(ctx, client.ObjectKeyFromObject(&machines[i]), &machines[i]); err != nil {
					return err
				}
				machines[i].Finalizers = []string{clusterv1.MachineFinalizer}
				return testEnv.Client.Update(ctx, &machines[i])
			}).Should(Succeed())
		}
	}
	letGo := func(ctx context.Context, machines []clusterv1.Machine) {
		GinkgoHelper()
		for i := range machines {
			Eventually(func() error {
				if err := testEnv.Client.Get(ctx, client.ObjectKeyFromObject(&machines[i]), &machines[i]); err != nil {
					return err
				}
				machines[i].Finalizers = nil
				return testEnv.Client.Update(ctx, &machines[i])
			}).Should(Succeed())
		}
	}

	It("counts each action once", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		machines := r.expectMachines(ctx, 3)
		hold(ctx, machines)
		done := func(a plan.Action) float64 { return testutil.ToFloat64(actionsDone.WithLabelValues(string(a))) }
		deleted, ended := done(plan.DeleteAll), done(plan.EndDeletion)
		deleteIt(ctx, r)
		r.reconcileTimes(ctx, reconciler, 3)
		Expect(done(plan.DeleteAll)).To(Equal(deleted+1), "to wait for the machines is no action")
		letGo(ctx, machines)
		r.reconcileTimes(ctx, reconciler, 2)
		Expect(gone(ctx, r)()).To(BeTrue())
		Expect(done(plan.EndDeletion)).To(Equal(ended + 1))
	})

	It("deletes the workers first, then all machines at once", func(ctx SpecContext) {
		r := newRig(ctx, managed, nil)
		machines := r.expectMachines(ctx, 3)
		worker := &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.namespace, Name: "worker", Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName},
			},
			Spec: clusterv1.MachineSpec{
				ClusterName: clusterName, Bootstrap: machines[0].Spec.Bootstrap, InfrastructureRef: machines[0].Spec.InfrastructureRef,
			},
		}
		Expect(testEnv.Client.Create(ctx, worker)).To(Succeed())
		hold(ctx, machines)
		deleteIt(ctx, r)
		Eventually(r.condition(ctx, controlplanev1.DeletingCondition)).Should(
			HaveField("Message", "Waiting for workers to be deleted first: Machine worker"))
		list, err := r.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveEach(HaveField("DeletionTimestamp", BeNil())))

		Expect(testEnv.Client.Delete(ctx, worker)).To(Succeed())
		// This is less than the requeue interval.
		Eventually(func() ([]clusterv1.Machine, error) { return r.machines(ctx) }, timelimits.LongPoll-2*time.Second).Should(
			HaveEach(HaveField("DeletionTimestamp", Not(BeNil()))))
		Eventually(r.condition(ctx, controlplanev1.DeletingCondition)).Should(
			HaveField("Message", HavePrefix("Waiting for machines to be deleted: c-cp-")))
		letGo(ctx, machines)
		Eventually(gone(ctx, r)).Should(BeTrue())
	})

	It("waits for MachinePools", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		machine := r.expectMachines(ctx, 3)[0]
		pool := &clusterv1.MachinePool{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.namespace, Name: "pool", Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName},
			},
			Spec: clusterv1.MachinePoolSpec{ClusterName: clusterName, Template: clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
				ClusterName: clusterName, Bootstrap: machine.Spec.Bootstrap, InfrastructureRef: machine.Spec.InfrastructureRef,
			}}},
		}
		Expect(testEnv.Client.Create(ctx, pool)).To(Succeed())
		deleteIt(ctx, r)
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(r.condition(ctx, controlplanev1.DeletingCondition)()).To(
			HaveField("Message", "Waiting for workers to be deleted first: MachinePool pool"))
		Expect(testEnv.Client.Delete(ctx, pool)).To(Succeed())
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(gone(ctx, r)()).To(BeTrue())
	})

	It("does not wait for machines of its own that a backup brought back without an owner", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		machines := r.expectMachines(ctx, 3)
		for i := range machines {
			machines[i].OwnerReferences = nil
			Expect(testEnv.Client.Update(ctx, &machines[i])).To(Succeed())
		}
		// Before the restored objects are reconciled.
		deleteIt(ctx, r)
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(gone(ctx, r)()).To(BeTrue())
		left, err := r.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(left).To(BeEmpty())
	})

	It("leaves nothing in memory", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Etcd.External.Endpoints = []string{"https://127.0.0.1:1"}
		})
		reconciler := direct(testEnv.Config, &fakeClusters{})
		handOver(ctx, r, time.Hour)
		r.reconcileUntilIdle(ctx, reconciler)
		machines := r.expectMachines(ctx, 3)
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(reconciler.applied.Len()).To(Equal(3*len(machines)), "of each its infrastructure machine and its NovaConfig too")
		Expect(reconciler.certificateKeeper.Cached()).NotTo(BeZero())

		hold(ctx, machines)
		Expect(testEnv.Client.Delete(ctx, &machines[0])).To(Succeed())
		r.reconcileUntilIdle(ctx, reconciler)
		r.reconcileUntilIdle(ctx, reconciler)
		// Another one with the same name may have been created.
		staying, err := r.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		staying = slices.DeleteFunc(staying, func(m clusterv1.Machine) bool { return !m.DeletionTimestamp.IsZero() })
		Expect(reconciler.applied.Len()).To(Equal(3 * len(staying)))

		letGo(ctx, machines[1:])
		deleteIt(ctx, r)
		r.reconcileUntilIdle(ctx, reconciler)
		_, err = reconciler.Reconcile(ctx, requestFor(r))
		Expect(err).NotTo(HaveOccurred())
		Expect(reconciler.applied.Len()).To(BeZero())
		letGo(ctx, machines[:1])
		r.reconcileUntilIdle(ctx, reconciler)
		_, err = reconciler.Reconcile(ctx, requestFor(r))
		Expect(err).NotTo(HaveOccurred())
		Expect(gone(ctx, r)()).To(BeTrue())
		Expect(reconciler.certificateKeeper.Cached()).To(BeZero())
	})

	It("needs neither infrastructure nor machines", func(ctx SpecContext) {
		r := newRig(ctx, managed, func(c *controlplanev1.NovaControlPlane) {
			c.Spec.MachineTemplate.Spec.InfrastructureRef.Name = "missing"
		})
		Eventually(r.condition(ctx, controlplanev1.AvailableCondition)).ShouldNot(HaveField("Type", BeEmpty()))
		deleteIt(ctx, r)
		Eventually(gone(ctx, r)).Should(BeTrue())
	})

	It("needs no Cluster", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		machines := r.expectMachines(ctx, 3)
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: clusterName}}
		Expect(testEnv.Client.Delete(ctx, cluster)).To(Succeed())
		_, err := reconciler.Reconcile(ctx, requestFor(r))
		Expect(err).NotTo(HaveOccurred())
		list, err := r.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveLen(len(machines)), "a missing Cluster is no reason to delete anything")
		deleteIt(ctx, r)
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(gone(ctx, r)()).To(BeTrue())
		list, err = r.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(BeEmpty())
	})
	It("needs no lock if its namespace is being deleted too", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		r.expectMachines(ctx, 3)
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		Expect(testEnv.Client.Status().Update(ctx, cluster)).To(Succeed())
		// No controller of namespaces runs here, so it only terminates.
		Expect(testEnv.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}})).To(Succeed())
		lock := initlock.Key(r.key(clusterName))
		Expect(client.IgnoreNotFound(testEnv.Client.Delete(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: lock.Namespace, Name: lock.Name},
		}))).To(Succeed())
		deleteIt(ctx, r)
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(gone(ctx, r)()).To(BeTrue())
	})
})
