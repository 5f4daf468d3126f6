package template_test

import (
	"context"
	"errors"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

var _ = Describe("A machine template", func() {
	small := map[string]string{"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20Gi"}

	It("reports the capacity of its machines", func(ctx SpecContext) {
		rig := newRig(ctx)
		rig.Hypervisor.SetSize(hypervisor.Size{
			CPUs: 8, MemoryBytes: 16 << 30, DiskBytes: 50 << 30, Architecture: "arm64", Devices: map[string]int64{"nvidia.com/gpu": 2},
		})
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.Client.Create(ctx, labeled(rig))).To(Succeed())
		Eventually(templateOf(ctx, rig)).Should(And(beSized(),
			haveCapacity(map[string]string{"cpu": "8", "memory": "16Gi", "ephemeral-storage": "50Gi", "nvidia.com/gpu": "2"}),
			HaveField("Status.NodeInfo", infrav1.NodeInfo{Architecture: "arm64", OperatingSystem: "linux"})))
		Eventually(func() ([]infratest.Event, error) {
			return rig.Events(ctx, "NovaVSphereMachineTemplate", "workers")
		}).Should(ConsistOf(And(HaveField("Type", "Normal"), HaveField("Reason", infrav1.CapacityKnownReason))))

		By("leaving out unknown values instead of reporting zero")
		rig.Hypervisor.SetSize(hypervisor.Size{CPUs: 4, MemoryBytes: 8 << 30})
		touch(ctx, rig)
		Eventually(templateOf(ctx, rig)).Should(And(beSized(), haveCapacity(map[string]string{"cpu": "4", "memory": "8Gi"}),
			HaveField("Status.NodeInfo", infrav1.NodeInfo{Architecture: "amd64", OperatingSystem: "linux"})), "an architecture that is left out is an empty label to cluster-autoscaler")

		By("writing nothing while nothing changes")
		Eventually(func(g Gomega) {
			t, err := templateOf(ctx, rig)()
			g.Expect(err).NotTo(HaveOccurred())
			g.Consistently(templateOf(ctx, rig)).Should(HaveField("ResourceVersion", t.ResourceVersion))
		}).Should(Succeed())
	})

	DescribeTable("finds its cluster when", func(ctx SpecContext, assign func(context.Context, *infratest.Rig)) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{NoRetry: true})).To(Succeed())
		Expect(rig.Client.Create(ctx, workers(rig, nil))).To(Succeed())
		Eventually(templateOf(ctx, rig)).Should(have(metav1.ConditionFalse, infrav1.WaitingForClusterReason, ContainSubstring("no cluster uses the template yet")))
		assign(ctx, rig)
		Eventually(templateOf(ctx, rig)).Should(And(beSized(), haveCapacity(small)))
		Expect(rig.Events(ctx, "NovaVSphereMachineTemplate", "workers")).NotTo(ContainElement(HaveField("Type", "Warning")))
	},
		Entry("a MachineDeployment uses it", func(ctx context.Context, rig *infratest.Rig) {
			Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
			Expect(rig.Client.Create(ctx, deployment(rig, "workers"))).To(Succeed())
		}),
		Entry("the Cluster of its MachineDeployment comes later", func(ctx context.Context, rig *infratest.Rig) {
			Expect(rig.Client.Create(ctx, deployment(rig, "workers"))).To(Succeed())
			Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		}),
		Entry("a MachineDeployment changes to it", func(ctx context.Context, rig *infratest.Rig) {
			Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
			d := deployment(rig, "others")
			Expect(rig.Client.Create(ctx, d)).To(Succeed())
			before := d.DeepCopy()
			d.Spec.Template.Spec.InfrastructureRef.Name = "workers"
			Expect(rig.Client.Patch(ctx, d, client.MergeFrom(before))).To(Succeed())
		}),
		Entry("its topology owns it", func(ctx context.Context, rig *infratest.Rig) {
			cluster := rig.Cluster()
			Expect(rig.CreateCluster(ctx, cluster, rig.InfraCluster())).To(Succeed())
			change(ctx, rig, func(t *vspherev1.NovaVSphereMachineTemplate) {
				t.OwnerReferences = []metav1.OwnerReference{infratest.Owner(cluster, "Cluster")}
			})
		}),
		Entry("a user labels it", func(ctx context.Context, rig *infratest.Rig) {
			Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
			change(ctx, rig, func(t *vspherev1.NovaVSphereMachineTemplate) {
				t.Labels = map[string]string{clusterv1.ClusterNameLabel: infratest.ClusterName}
			})
		}),
	)

	It("keeps a known capacity while the hypervisor is unreachable, and updates it afterwards", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{NoRetry: true})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.Client.Create(ctx, labeled(rig))).To(Succeed())
		Eventually(templateOf(ctx, rig)).Should(beSized())
		down := broken(infrav1.EndpointUnreachableReason, "connection refused")
		rig.Hypervisor.Fail(fake.Size, down)
		rig.Hypervisor.Fail(fake.Inspect, down)
		rig.Hypervisor.NotifyEndpoint(fake.KeyOf(rig.InfraCluster()))
		Eventually(templateOf(ctx, rig)).Should(And(haveCapacity(small), have(metav1.ConditionFalse, infrav1.EndpointUnreachableReason,
			Equal("Getting the size of machines: connection refused"))))
		// Only a cluster that was seen to be out of reach can be seen to recover.
		cluster := rig.InfraCluster()
		Eventually(func() (string, error) {
			err := rig.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)
			return conditions.GetReason(cluster, infrav1.HypervisorAvailableCondition), err
		}).Should(Equal(infrav1.EndpointUnreachableReason))

		By("making the hypervisor available again")
		rig.Hypervisor.Repair(fake.Size)
		rig.Hypervisor.Repair(fake.Inspect)
		rig.Hypervisor.NotifyEndpoint(fake.KeyOf(rig.InfraCluster()))
		Eventually(templateOf(ctx, rig)).Should(beSized())
	})

	It("reports why its capacity is unknown", func(ctx SpecContext) {
		rig := newRig(ctx)
		rig.Hypervisor.Fail(fake.Size, broken(infrav1.TemplateNotFoundReason, `template "x" does not exist`))
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.Client.Create(ctx, labeled(rig))).To(Succeed())
		Eventually(templateOf(ctx, rig)).Should(And(haveCapacity(map[string]string{}), have(metav1.ConditionFalse, infrav1.TemplateNotFoundReason,
			Equal(`Getting the size of machines: template "x" does not exist`))))
		rig.Hypervisor.Repair(fake.Size)
		Eventually(templateOf(ctx, rig)).Should(And(beSized(), haveCapacity(small)))
	})

	It("is not reconciled while paused or with another watch label", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{WatchFilter: "blue"})).To(Succeed())
		cluster := rig.Cluster()
		cluster.Spec.Paused = ptr.To(true)
		Expect(rig.CreateCluster(ctx, cluster, rig.InfraCluster())).To(Succeed())
		Expect(rig.Client.Create(ctx, labeled(rig))).To(Succeed())
		untouched := HaveField("Status", BeZero())
		Consistently(templateOf(ctx, rig)).Should(untouched)
		change(ctx, rig, func(t *vspherev1.NovaVSphereMachineTemplate) { t.Labels[clusterv1.WatchLabel] = "blue" })
		Consistently(templateOf(ctx, rig)).Should(untouched)
		before := cluster.DeepCopy()
		cluster.Spec.Paused = ptr.To(false)
		Expect(rig.Client.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
		Eventually(templateOf(ctx, rig)).Should(beSized())
	})

	It("waits for its cluster to be created, without a request to the hypervisor", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{NoRetry: true})).To(Succeed())
		Expect(rig.Client.Create(ctx, labeled(rig))).To(Succeed())
		waits := have(metav1.ConditionFalse, infrav1.WaitingForClusterReason, ContainSubstring(`the Cluster "tenant"`))
		Eventually(templateOf(ctx, rig)).Should(waits)
		infra := rig.InfraCluster()
		infra.Labels = nil
		Expect(rig.CreateCluster(ctx, rig.Cluster(), infra)).To(Succeed())
		Consistently(templateOf(ctx, rig)).Should(waits)
		Expect(rig.Hypervisor.Calls(fake.Size)).To(BeZero())
		By("labeling its infrastructure, as Cluster API does")
		Eventually(func() error {
			if err := rig.Client.Get(ctx, client.ObjectKeyFromObject(infra), infra); err != nil {
				return err
			}
			infra.Labels = map[string]string{clusterv1.ClusterNameLabel: infratest.ClusterName}
			return rig.Client.Update(ctx, infra)
		}).Should(Succeed())
		Eventually(templateOf(ctx, rig)).Should(And(beSized(), haveCapacity(small)))
	})

	It("is passed to the driver with its cluster, and is not changed itself", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.Client.Create(ctx, deployment(rig, "workers"))).To(Succeed())
		Expect(rig.Client.Create(ctx, workers(rig, nil))).To(Succeed())
		sizer := &witness{}
		r := infratest.Templates(rig.Hypervisor)
		r.Client, r.Recorder, r.Sizer = rig.Client, &events.FakeRecorder{}, sizer
		req := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: rig.Namespace, Name: "workers"}}
		Expect(r.Reconcile(ctx, req)).To(Equal(ctrl.Result{RequeueAfter: reconcile.PollInterval}), "while the driver waits")
		Expect(sizer.seen.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, infratest.ClusterName))
		Expect(templateOf(ctx, rig)()).To(HaveField("Labels", BeEmpty()))
	})
})

// witness is a Sizer that records the templates it gets and waits.
type witness struct {
	mu   sync.Mutex
	seen *vspherev1.NovaVSphereMachineTemplate
}

func (w *witness) Size(_ context.Context, t *vspherev1.NovaVSphereMachineTemplate) (hypervisor.Size, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = t.DeepCopy()
	return hypervisor.Size{}, &hypervisor.Error{Reason: infrav1.WaitingForClusterReason, Waiting: true, Err: errors.New("no NovaVSphereCluster yet")}
}

// deployment returns a MachineDeployment that makes machines from a template.
func deployment(rig *infratest.Rig, template string) *clusterv1.MachineDeployment {
	labels := map[string]string{"pool": "workers"}
	d := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "workers"}}
	d.Spec.ClusterName = infratest.ClusterName
	d.Spec.Selector.MatchLabels = labels
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec = rig.Machine().Spec
	d.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "NovaVSphereMachineTemplate", Name: template,
	}
	return d
}

// change changes the template's metadata.
func change(ctx context.Context, rig *infratest.Rig, change func(*vspherev1.NovaVSphereMachineTemplate)) {
	GinkgoHelper()
	t, err := templateOf(ctx, rig)()
	Expect(err).NotTo(HaveOccurred())
	before := t.DeepCopy()
	change(t)
	Expect(rig.Client.Patch(ctx, t, client.MergeFrom(before))).To(Succeed())
}

// touch wakes the reconciler.
func touch(ctx context.Context, rig *infratest.Rig) {
	GinkgoHelper()
	change(ctx, rig, func(t *vspherev1.NovaVSphereMachineTemplate) { t.Annotations = map[string]string{"touched": "yes"} })
}
