package cluster_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

var _ = Describe("An infrastructure cluster", func() {
	It("becomes provisioned with an ID, a version and failure domains", func(ctx SpecContext) {
		rig := newRig(ctx)
		zones := []clusterv1.FailureDomain{{Name: "zone-a", ControlPlane: ptr.To(true)}, {Name: "zone-b"}}
		backwards := []clusterv1.FailureDomain{zones[1], zones[0]}
		rig.Hypervisor.SetEndpoint(hypervisor.Key{}, hypervisor.Endpoint{Version: "8.0.3", FailureDomains: backwards, Server: "vcenter.example", Thumbprint: "AB:CD"})
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(And(beReady(),
			HaveField("Finalizers", ConsistOf(infrav1.ClusterFinalizer)),
			HaveField("Status.Version", "8.0.3"), HaveField("Status.FailureDomains", zones),
			HaveField("Status.Server", "vcenter.example"), HaveField("Status.Thumbprint", "AB:CD")))
		c, err := clusterOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Annotations).To(HaveKeyWithValue(infrav1.ClusterIDAnnotation, string(c.UID)))
		Eventually(eventsOf(ctx, rig)).Should(ConsistOf(event("Normal", infrav1.HypervisorAvailableReason), event("Normal", clusterv1.ReadyReason)))

		By("staying as it is, without another write")
		Eventually(func(g Gomega) {
			c, err := clusterOf(ctx, rig)()
			g.Expect(err).NotTo(HaveOccurred())
			g.Consistently(clusterOf(ctx, rig)).Should(HaveField("ResourceVersion", c.ResourceVersion))
		}).Should(Succeed())

		By("losing its failure domains")
		rig.Hypervisor.SetEndpoint(fake.KeyOf(c), hypervisor.Endpoint{Version: "8.0.3"})
		Eventually(clusterOf(ctx, rig)).Should(And(beReady(), HaveField("Status.FailureDomains", BeNil())))
	})

	It("keeps the ID it was moved with", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		moved := rig.InfraCluster()
		moved.Annotations = map[string]string{infrav1.ClusterIDAnnotation: "0c0ffee0-0000-4000-8000-000000000000"}
		Expect(rig.CreateCluster(ctx, rig.Cluster(), moved)).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(beReady())
		Expect(clusterOf(ctx, rig)()).To(HaveField("Annotations",
			HaveKeyWithValue(infrav1.ClusterIDAnnotation, "0c0ffee0-0000-4000-8000-000000000000")))
	})

	It("waits for an endpoint, which the Cluster may name", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		infra, cluster := rig.InfraCluster(), rig.Cluster()
		infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
		Expect(rig.CreateCluster(ctx, cluster, infra)).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(And(
			have(clusterv1.ReadyCondition, metav1.ConditionFalse, infrav1.WaitingForEndpointReason, ContainSubstring("spec.controlPlaneEndpoint")),
			have(infrav1.HypervisorAvailableCondition, metav1.ConditionTrue, infrav1.HypervisorAvailableReason, BeEmpty()),
			Not(beProvisioned())))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(event("Normal", infrav1.WaitingForEndpointReason)))
		before := cluster.DeepCopy()
		cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443}
		Expect(rig.Client.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(beReady())
	})

	It("reports when the hypervisor becomes unreachable and reachable, and stays provisioned", func(ctx SpecContext) {
		rig := newRig(ctx)
		key := fake.KeyOf(rig.InfraCluster())
		rig.Hypervisor.Fail(fake.Inspect, broken(infrav1.CredentialsInvalidReason, "wrong password."))
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(And(
			have(clusterv1.ReadyCondition, metav1.ConditionFalse, infrav1.CredentialsInvalidReason, Equal(`Checking the hypervisor: wrong password; correct Secret "vcenter"`)),
			have(infrav1.HypervisorAvailableCondition, metav1.ConditionFalse, infrav1.CredentialsInvalidReason, Equal(`Checking the hypervisor: wrong password; correct Secret "vcenter"`)),
			Not(beProvisioned())))
		rig.Hypervisor.Repair(fake.Inspect)
		rig.Hypervisor.NotifyEndpoint(key)
		Eventually(clusterOf(ctx, rig)).Should(beReady())

		By("losing the hypervisor, with other words each time")
		for n := range 5 {
			rig.Hypervisor.Fail(fake.Inspect, broken(infrav1.EndpointUnreachableReason, fmt.Sprintf("port %d: connection refused", 40000+n)))
			calls := rig.Hypervisor.Calls(fake.Inspect)
			rig.Hypervisor.NotifyEndpoint(key)
			// By the first retry the reconciler's cache contains the condition.
			Eventually(func() int { return rig.Hypervisor.Calls(fake.Inspect) }).Should(BeNumerically(">=", calls+2))
			Eventually(clusterOf(ctx, rig)).Should(And(
				have(infrav1.HypervisorAvailableCondition, metav1.ConditionFalse, infrav1.EndpointUnreachableReason, ContainSubstring("40000")),
				have(clusterv1.ReadyCondition, metav1.ConditionFalse, infrav1.EndpointUnreachableReason, ContainSubstring("40000")),
				beProvisioned()))
		}
		rig.Hypervisor.Repair(fake.Inspect)
		rig.Hypervisor.NotifyEndpoint(key)
		Eventually(clusterOf(ctx, rig)).Should(beReady())
		Eventually(eventsOf(ctx, rig)).Should(ConsistOf(
			event("Warning", infrav1.CredentialsInvalidReason), event("Warning", infrav1.EndpointUnreachableReason),
			event("Normal", infrav1.HypervisorAvailableReason), event("Normal", clusterv1.ReadyReason),
			event("Normal", infrav1.HypervisorAvailableReason), event("Normal", clusterv1.ReadyReason)))
	})

	It("recovers immediately after the Secret is fixed", func(ctx SpecContext) {
		rig := newRig(ctx)
		rig.Hypervisor.Fail(fake.Inspect, broken(infrav1.CredentialsInvalidReason, "wrong password"))
		Expect(rig.Run(infratest.Options{NoRetry: true})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(have(infrav1.HypervisorAvailableCondition, metav1.ConditionFalse, infrav1.CredentialsInvalidReason, Not(BeEmpty())))
		Eventually(rig.Quiet(fake.Inspect)).WithPolling(time.Second).Should(BeTrue())
		rig.Hypervisor.Repair(fake.Inspect)
		other := rig.Secret("unrelated", map[string]string{"password": "x"})
		Expect(rig.Client.Create(ctx, other)).To(Succeed())
		Consistently(clusterOf(ctx, rig)).ShouldNot(beReady())
		Expect(rig.Client.Update(ctx, rig.Secret(infratest.CredentialsName, map[string]string{"username": "nova", "password": "right"}))).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(beReady())
	})

	It("waits for its machines when it is deleted, and names them", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateAll(ctx)).To(Succeed())
		Eventually(func() bool { return rig.Hypervisor.Exists(rig.Key()) }).Should(BeTrue())
		// The controllers start one after another.
		Eventually(clusterOf(ctx, rig)).Should(beReady())
		rig.Hypervisor.Hold(fake.Delete)
		Expect(rig.Client.Delete(ctx, rig.InfraCluster())).To(Succeed())
		Expect(rig.Client.Delete(ctx, rig.Cluster())).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(have(clusterv1.ReadyCondition, metav1.ConditionFalse, infrav1.WaitingForMachinesReason,
			Equal("Waiting for these machines to be deleted: tenant-0")))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(event("Normal", infrav1.WaitingForMachinesReason)))
		Consistently(clusterOf(ctx, rig)).Should(HaveField("Finalizers", ConsistOf(infrav1.ClusterFinalizer)))
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		rig.Hypervisor.Release(fake.Delete)
		Eventually(deleted(ctx, rig, rig.InfraCluster())).Should(beGone())
		Expect(deleted(ctx, rig, rig.InfraMachine())()).To(beGone())
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(event("Normal", "Deleted")))
	})

	It("counts the machines that do not fit the message", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		for n := range 7 {
			m := rig.InfraMachine()
			m.Name = fmt.Sprintf("m%d", n)
			Expect(rig.Client.Create(ctx, m)).To(Succeed())
		}
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(beReady())
		Expect(rig.Client.Delete(ctx, rig.InfraCluster())).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(have(clusterv1.ReadyCondition, metav1.ConditionFalse, infrav1.WaitingForMachinesReason,
			HaveSuffix("deleted: m0, m1, m2, m3, m4 and 2 more")))
	})

	It("is deleted after its last machine although the hypervisor cannot be reached", func(ctx SpecContext) {
		rig := newRig(ctx)
		rig.Hypervisor.Fail(fake.Inspect, broken(infrav1.EndpointUnreachableReason, "connection refused"))
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(have(clusterv1.ReadyCondition, metav1.ConditionFalse, infrav1.EndpointUnreachableReason, Not(BeEmpty())))
		Expect(rig.Client.Delete(ctx, rig.InfraCluster())).To(Succeed())
		Eventually(deleted(ctx, rig, rig.InfraCluster())).Should(beGone())
	})

	It("gets its ID even when it is deleted first, as its machines need it", func(ctx SpecContext) {
		rig := newRig(ctx)
		cluster, infra := rig.Cluster(), rig.InfraCluster()
		controllerutil.AddFinalizer(infra, infrav1.ClusterFinalizer)
		Expect(rig.CreateCluster(ctx, cluster, infra)).To(Succeed())
		m := rig.InfraMachine()
		controllerutil.AddFinalizer(m, "example.test/held")
		Expect(rig.Client.Create(ctx, m)).To(Succeed())
		Expect(rig.Client.Delete(ctx, infra)).To(Succeed())
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(HaveField("Annotations", HaveKeyWithValue(infrav1.ClusterIDAnnotation, string(infra.UID))))
	})

	It("that others manage gets its ID, for its machines, and nothing else", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		infra := rig.InfraCluster()
		infra.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "somebody"}
		Expect(rig.CreateCluster(ctx, rig.Cluster(), infra)).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(HaveField("Annotations", HaveKeyWithValue(infrav1.ClusterIDAnnotation, string(infra.UID))))

		By("setting it provisioned from outside")
		c, err := clusterOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		before := c.DeepCopy()
		c.Status.Initialization.Provisioned = ptr.To(true)
		c.Status.FailureDomains = []clusterv1.FailureDomain{{Name: "zone-a"}}
		Expect(rig.Client.Status().Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		Expect(rig.CreateMachine(ctx, rig.Machine(), rig.InfraMachine())).To(Succeed())
		machine := rig.InfraMachine()
		Eventually(func() (string, error) {
			err := rig.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)
			return machine.Spec.ProviderID, err
		}).ShouldNot(BeEmpty())
		Consistently(clusterOf(ctx, rig)).Should(And(
			HaveField("ResourceVersion", c.ResourceVersion), HaveField("Finalizers", BeEmpty()), HaveField("Status", c.Status)))
		Expect(rig.Hypervisor.Calls(fake.Inspect)).To(BeZero())
	})

	It("is released when another controller takes it over", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(beReady())
		c, err := clusterOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		before := c.DeepCopy()
		c.Annotations[clusterv1.ManagedByAnnotation] = "somebody"
		Expect(rig.Client.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(HaveField("Finalizers", BeEmpty()))
		Expect(clusterOf(ctx, rig)()).To(And(
			HaveField("Status.Conditions", BeEmpty()),
			HaveField("Status.Initialization.Provisioned", HaveValue(BeTrue())),
			HaveField("Annotations", HaveKey(infrav1.ClusterIDAnnotation))))

		By("deleting it without a finalizer")
		Expect(rig.Client.Delete(ctx, c)).To(Succeed())
		Eventually(deleted(ctx, rig, c)).Should(beGone())
	})

	It("is left alone while paused, by another watch label, or managed by others", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{WatchFilter: "blue"})).To(Succeed())
		cluster, infra := rig.Cluster(), rig.InfraCluster()
		cluster.Spec.Paused = ptr.To(true)
		infra.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "somebody"}
		Expect(rig.CreateCluster(ctx, cluster, infra)).To(Succeed())
		Consistently(clusterOf(ctx, rig)).Should(HaveField("Finalizers", BeEmpty()))

		patch := func(change func(*vspherev1.NovaVSphereCluster)) {
			GinkgoHelper()
			c, err := clusterOf(ctx, rig)()
			Expect(err).NotTo(HaveOccurred())
			before := c.DeepCopy()
			change(c)
			Expect(rig.Client.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
		}
		By("labeling it")
		patch(func(c *vspherev1.NovaVSphereCluster) { c.Labels[clusterv1.WatchLabel] = "blue" })
		Consistently(clusterOf(ctx, rig)).Should(HaveField("Finalizers", BeEmpty()))
		Expect(clusterOf(ctx, rig)()).To(HaveField("Annotations", Not(HaveKey(infrav1.ClusterIDAnnotation))), "it is paused")
		By("taking it over, which the pause holds back")
		patch(func(c *vspherev1.NovaVSphereCluster) { delete(c.Annotations, clusterv1.ManagedByAnnotation) })
		Eventually(clusterOf(ctx, rig)).Should(Satisfy(func(c *vspherev1.NovaVSphereCluster) bool {
			return conditions.IsTrue(c, clusterv1.PausedCondition)
		}))
		Consistently(func() int { return rig.Hypervisor.Calls(fake.Inspect) }).Should(BeZero())
		By("going on")
		before := cluster.DeepCopy()
		cluster.Spec.Paused = ptr.To(false)
		Expect(rig.Client.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(beReady())
	})
})
