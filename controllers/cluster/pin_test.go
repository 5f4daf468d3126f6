package cluster_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

var _ = Describe("A cluster's hypervisor", func() {
	It("stays the same one as long as there are machines", func(ctx SpecContext) {
		rig := newRig(ctx)
		key := fake.KeyOf(rig.InfraCluster())
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		pinned := func(id string) OmegaMatcher {
			return HaveField("Annotations", HaveKeyWithValue(infrav1.HypervisorIDAnnotation, id))
		}
		Eventually(clusterOf(ctx, rig)).Should(And(beReady(), pinned("fake-1")))

		By("being another one while nothing is on it")
		rig.Hypervisor.SetEndpoint(key, hypervisor.Endpoint{ID: "fake-2", Version: "2"})
		Eventually(clusterOf(ctx, rig)).Should(And(beReady(), pinned("fake-2"), HaveField("Status.Version", "2")))

		By("being another one that has none of the VMs")
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		Expect(rig.CreateMachine(ctx, rig.Machine(), rig.InfraMachine())).To(Succeed())
		Eventually(func() bool { return rig.Hypervisor.Exists(rig.Key()) }).Should(BeTrue())
		rig.Hypervisor.SetEndpoint(key, hypervisor.Endpoint{ID: "fake-3", Version: "3"})
		Eventually(clusterOf(ctx, rig)).Should(And(
			have(infrav1.HypervisorAvailableCondition, metav1.ConditionFalse, infrav1.HypervisorChangedReason, ContainSubstring(`"fake-3"`)),
			have(clusterv1.ReadyCondition, metav1.ConditionFalse, infrav1.HypervisorChangedReason, ContainSubstring(infrav1.HypervisorIDAnnotation)),
			pinned("fake-2"), HaveField("Status.Version", "2"), beProvisioned()))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(event("Warning", infrav1.HypervisorChangedReason)))

		By("coming back under another version")
		rig.Hypervisor.SetEndpoint(key, hypervisor.Endpoint{ID: "fake-2", Version: "4"})
		Eventually(clusterOf(ctx, rig)).Should(And(beReady(), pinned("fake-2"), HaveField("Status.Version", "4")))
	})
})

var _ = Describe("A control plane endpoint", func() {
	It("is reported while two clusters on a hypervisor have it", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(beReady())
		other := rig.InfraCluster()
		other.Name, other.Labels = "rival", nil
		other.Annotations = map[string]string{infrav1.HypervisorIDAnnotation: "fake-1"}
		Expect(rig.Client.Create(ctx, other)).To(Succeed())
		touch := func(value string) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				infra := rig.InfraCluster()
				g.Expect(rig.Client.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
				infra.Labels["touched"] = value
				g.Expect(rig.Client.Update(ctx, infra)).To(Succeed())
			}).Should(Succeed())
		}
		touch("1")
		Eventually(clusterOf(ctx, rig)).Should(And(beReady(),
			have(infrav1.EndpointUniqueCondition, metav1.ConditionFalse, infrav1.EndpointInUseReason,
				Equal(`The control plane endpoint 192.0.2.10:6443 is also that of the cluster "rival" on the same hypervisor`))))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(event("Warning", infrav1.EndpointInUseReason)))

		By("going to another hypervisor")
		other.Annotations[infrav1.HypervisorIDAnnotation] = "another"
		Expect(rig.Client.Update(ctx, other)).To(Succeed())
		touch("2")
		Eventually(clusterOf(ctx, rig)).Should(And(beReady(), HaveField("Status.Conditions", Not(ContainElement(HaveField("Type", infrav1.EndpointUniqueCondition))))))
	})
})
