package machine_test

import (
	"context"
	"fmt"
	"net/netip"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

// poolsOf returns a pool of IPv4 and one of IPv6 addresses. Neither pool is served yet.
func poolsOf(rig *infratest.Rig) (v4, v6 *infratest.Pool) {
	v4 = &infratest.Pool{
		Client: rig.Client, Namespace: rig.Namespace, Name: "v4", Size: 2,
		First: netip.MustParsePrefix("192.0.2.10/24"), Gateway: netip.MustParseAddr("192.0.2.1"),
	}
	v6 = &infratest.Pool{
		Client: rig.Client, Namespace: rig.Namespace, Name: "v6", Size: 2, First: netip.MustParsePrefix("2001:db8::a/64"),
	}
	return v4, v6
}

// open serves pools until the spec ends.
func open(pools ...*infratest.Pool) {
	for _, pool := range pools {
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- pool.Run(ctx) }()
		DeferCleanup(func() {
			stop()
			Expect(<-done).To(Or(Succeed(), MatchError(context.Canceled)))
		})
	}
}

// pooled returns a machine with four interfaces: one with both pools, one with none, one with the
// second pool, and one more with none.
func pooled(rig *infratest.Rig, v4, v6 *infratest.Pool) *vspherev1.NovaVSphereMachine {
	m := rig.InfraMachine()
	m.Spec.Network.Interfaces = make([]vspherev1.NovaVSphereInterface, 4)
	for i := range m.Spec.Network.Interfaces {
		m.Spec.Network.Interfaces[i].Network = fmt.Sprintf("network-%d", i)
	}
	m.Spec.Network.Interfaces[0].AddressesFromPools = []ipamv1.IPPoolReference{v4.Ref(), v6.Ref()}
	m.Spec.Network.Interfaces[2].AddressesFromPools = []ipamv1.IPPoolReference{v6.Ref()}
	return m
}

// createPooled creates a provisioned cluster with one machine from pooled.
func createPooled(ctx context.Context, rig *infratest.Rig, v4, v6 *infratest.Pool) {
	GinkgoHelper()
	Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
	Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
	Expect(rig.CreateMachine(ctx, rig.Machine(), pooled(rig, v4, v6))).To(Succeed())
}

// claimsOf polls the claims in the rig.
func claimsOf(ctx context.Context, rig *infratest.Rig) func() ([]ipamv1.IPAddressClaim, error) {
	return func() ([]ipamv1.IPAddressClaim, error) {
		list := &ipamv1.IPAddressClaimList{}
		err := rig.Client.List(ctx, list, client.InNamespace(rig.Namespace))
		return list.Items, err
	}
}

var _ = Describe("An address from a pool", func() {
	It("is claimed from the pools of the machine's failure domain and released", func(ctx SpecContext) {
		rig := newRig(ctx)
		v4, v6 := poolsOf(rig)
		open(v4, v6)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), rig.InfraCluster())).To(Succeed())
		Expect(rig.ProvisionInfrastructure(ctx)).To(Succeed())
		m, machine := rig.InfraMachine(), rig.Machine()
		machine.Spec.FailureDomain = "zone-a"
		m.Spec.Network.Interfaces = []vspherev1.NovaVSphereInterface{{Network: "network-0"}}
		m.Spec.Network.Interfaces[0].FailureDomains = []vspherev1.NovaVSphereInterfaceFailureDomain{
			{InterfaceFailureDomain: infrav1.InterfaceFailureDomain{Name: "zone-b", AddressesFromPools: []ipamv1.IPPoolReference{v4.Ref()}}},
			// The VM reports an IPv4 address that no pool has given to it.
			{InterfaceFailureDomain: infrav1.InterfaceFailureDomain{Name: "zone-a", DHCP4: ptr.To(true), AddressesFromPools: []ipamv1.IPPoolReference{v6.Ref()}}},
		}
		Expect(rig.CreateMachine(ctx, machine, m)).To(Succeed())
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
		Expect(claimsOf(ctx, rig)()).To(ConsistOf(HaveField("Spec.PoolRef", v6.Ref())))
		Expect(rig.Hypervisor.CreateOptions(rig.Key()).Interfaces).To(HaveLen(1))
		Expect(rig.Client.Delete(ctx, m)).To(Succeed())
		Eventually(claimsOf(ctx, rig)).Should(BeEmpty())
	})

	It("of an interface has to be an address in its failure domains, too", func(ctx SpecContext) {
		rig := newRig(ctx)
		m := rig.InfraMachine()
		m.Spec.Network.Interfaces = []vspherev1.NovaVSphereInterface{{Network: "network-0"}}
		m.Spec.Network.Interfaces[0].FailureDomains = []vspherev1.NovaVSphereInterfaceFailureDomain{{InterfaceFailureDomain: infrav1.InterfaceFailureDomain{
			Name: "site-a", AddressesFromPools: []ipamv1.IPPoolReference{{APIGroup: "ipam.example.test", Kind: "Pool", Name: "p"}}, Gateway4: "no address",
		}}}
		Expect(rig.Client.Create(ctx, m)).To(MatchError(ContainSubstring("gateway4")))
	})

	It("is claimed before the creation of the VM and released after its deletion", func(ctx SpecContext) {
		rig := newRig(ctx)
		v4, v6 := poolsOf(rig)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		createPooled(ctx, rig, v4, v6)

		By("waiting for pools that are paused")
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.WaitingForAddressPoolReason, And(
			ContainSubstring(`IPAddressClaim "tenant-0-0-0" on TestPool "v4": it has no address yet`),
			ContainSubstring(`"tenant-0-0-1"`), ContainSubstring(`"tenant-0-2-0"`), ContainSubstring("paused"))))
		Expect(rig.Hypervisor.Calls(fake.Create)).To(BeZero())
		m, err := machineOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		claims, err := claimsOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		Expect(claims).To(HaveLen(3))
		for _, claim := range claims {
			Expect(claim).To(And(
				HaveField("Finalizers", ConsistOf(infrav1.AddressClaimFinalizer)),
				HaveField("Labels", HaveKeyWithValue(clusterv1.ClusterNameLabel, infratest.ClusterName)),
				HaveField("Spec.ClusterName", infratest.ClusterName),
				HaveField("OwnerReferences", ConsistOf(metav1.OwnerReference{
					APIVersion: infrav1.GroupVersion.String(), Kind: "NovaVSphereMachine", Name: m.Name, UID: m.UID,
					Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
				}))))
		}
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(normal("AddressesClaimed")))

		By("resuming the pools")
		open(v4, v6)
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
		// The order in which the second pool gives out its addresses is not defined.
		launched := rig.Hypervisor.CreateOptions(rig.Key()).Interfaces
		Expect(launched).To(HaveLen(3))
		Expect(launched[0]).To(HaveLen(2))
		Expect(launched[0][0]).To(Equal(hypervisor.Address{Prefix: v4.First, Gateway: v4.Gateway}))
		Expect(launched[1]).To(BeEmpty())
		Expect([]hypervisor.Address{launched[0][1], launched[2][0]}).To(ConsistOf(
			hypervisor.Address{Prefix: v6.First}, hypervisor.Address{Prefix: netip.MustParsePrefix("2001:db8::b/64")}))

		By("keeping a claim that a user deletes while the VM exists")
		Expect(rig.Client.Delete(ctx, &claims[0])).To(Succeed())
		rig.Hypervisor.Hold(fake.Delete)
		Expect(rig.Client.Delete(ctx, m)).To(Succeed())
		Eventually(func() int { return rig.Hypervisor.Calls(fake.Delete) }).Should(Equal(1))
		Consistently(claimsOf(ctx, rig)).Should(And(HaveLen(3), HaveEach(HaveField("Finalizers", ContainElement(infrav1.AddressClaimFinalizer)))))
		rig.Hypervisor.Release(fake.Delete)
		Eventually(get(ctx, rig, m)).Should(beGone())
		Eventually(claimsOf(ctx, rig)).Should(BeEmpty())
		addresses := &ipamv1.IPAddressList{}
		Expect(rig.Client.List(ctx, addresses, client.InNamespace(rig.Namespace))).To(Succeed())
		Expect(addresses.Items).To(BeEmpty())
	})

	It("that a pool does not have is waited for with the pool's message", func(ctx SpecContext) {
		rig := newRig(ctx)
		v4, v6 := poolsOf(rig)
		v4.Size = 0
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		createPooled(ctx, rig, v4, v6)
		open(v4, v6)
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.WaitingForAddressPoolReason,
			Equal(`Waiting for IPAddressClaim "tenant-0-0-0" on TestPool "v4": all 0 addresses are taken`)))
		Expect(eventsOf(ctx, rig)()).To(WithTransform(warnings, BeZero()))

		By("deleting the machine, which releases all addresses")
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Eventually(claimsOf(ctx, rig)).Should(BeEmpty())
		Expect(rig.Hypervisor.Calls(fake.Create)).To(BeZero())
	})

	It("that is invalid is an error", func(ctx SpecContext) {
		rig := newRig(ctx)
		v4, v6 := poolsOf(rig)
		v4.Gateway = netip.MustParseAddr("2001:db8::1")
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		createPooled(ctx, rig, v4, v6)
		open(v4, v6)
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.AddressInvalidReason,
			Equal(`Reading IPAddress "tenant-0-0-0": its gateway 2001:db8::1 is of another family than 192.0.2.10`)))
		Eventually(eventsOf(ctx, rig)).Should(ContainElement(warning(infrav1.AddressInvalidReason)))
		Expect(rig.Hypervisor.Calls(fake.Create)).To(BeZero())
	})

	It("is claimed again if a user deletes the claim before the VM exists", func(ctx SpecContext) {
		rig := newRig(ctx)
		v4, v6 := poolsOf(rig)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		createPooled(ctx, rig, v4, v6)
		Eventually(claimsOf(ctx, rig)).Should(HaveLen(3))
		claims, err := claimsOf(ctx, rig)()
		Expect(err).NotTo(HaveOccurred())
		Expect(rig.Client.Delete(ctx, &claims[0])).To(Succeed())
		Eventually(claimsOf(ctx, rig)).Should(And(HaveLen(3), HaveEach(HaveField("UID", Not(Equal(claims[0].UID))))))
		open(v4, v6)
		Eventually(machineOf(ctx, rig)).Should(beProvisioned())
	})

	It("is never read from a claim of another owner", func(ctx SpecContext) {
		rig := newRig(ctx)
		v4, v6 := poolsOf(rig)
		theirs := &ipamv1.IPAddressClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "tenant-0-0-0"},
			Spec:       ipamv1.IPAddressClaimSpec{PoolRef: v4.Ref()},
		}
		Expect(rig.Client.Create(ctx, theirs)).To(Succeed())
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		createPooled(ctx, rig, v4, v6)
		open(v4, v6)
		Eventually(machineOf(ctx, rig)).Should(haveState(metav1.ConditionFalse, infrav1.NameConflictReason, ContainSubstring("does not belong to this machine")))
		Expect(rig.Hypervisor.Calls(fake.Create)).To(BeZero())
		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(get(ctx, rig, rig.InfraMachine())).Should(beGone())
		Expect(get(ctx, rig, theirs)()).To(Succeed())
		Expect(theirs.DeletionTimestamp).To(BeNil())
	})
})
