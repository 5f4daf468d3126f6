package cluster_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

var _ = Describe("A cluster that borrows its account", func() {
	// scene is a rig with a cluster that references an identity, whose Secret is in another namespace.
	type scene struct {
		rig      *infratest.Rig
		managers string
		identity *vspherev1.NovaVSphereIdentity
		secret   *corev1.Secret
	}
	borrowing := func(ctx context.Context) scene {
		GinkgoHelper()
		s := scene{rig: newRig(ctx)}
		pinned := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "managers-"}}
		Expect(server.Client.Create(ctx, pinned)).To(Succeed())
		s.managers = pinned.Name
		s.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: pinned.Name, Name: "account"}}
		Expect(server.Client.Create(ctx, s.secret)).To(Succeed())
		s.identity = &vspherev1.NovaVSphereIdentity{
			ObjectMeta: metav1.ObjectMeta{Name: s.rig.Namespace},
			Spec: vspherev1.NovaVSphereIdentitySpec{IdentitySpec: infrav1.IdentitySpec{
				Server: "vcenter.example.test", CredentialsSecretRef: infrav1.IdentitySecretReference{Name: "account"},
			}},
		}
		Expect(server.Client.Create(ctx, s.identity)).To(Succeed())
		s.rig.Hypervisor.Fail(fake.Inspect, broken(infrav1.CredentialsInvalidReason, "not yet"))
		Expect(s.rig.Run(infratest.Options{NoRetry: true, ManagerNamespace: s.managers})).To(Succeed())
		infra := s.rig.InfraCluster()
		infra.Spec.IdentityRef.Kind, infra.Spec.IdentityRef.Name = vspherev1.NovaVSphereIdentityKind, s.identity.Name
		infra.Spec.Server = ""
		Expect(s.rig.CreateCluster(ctx, s.rig.Cluster(), infra)).To(Succeed())
		Eventually(clusterOf(ctx, s.rig)).Should(have(
			infrav1.HypervisorAvailableCondition, metav1.ConditionFalse, infrav1.CredentialsInvalidReason, Not(BeEmpty())))
		// The manager makes the identity an owner of the Secret, which is a change of the Secret.
		Eventually(func() (*corev1.Secret, error) {
			return s.secret, server.Client.Get(ctx, client.ObjectKeyFromObject(s.secret), s.secret)
		}).Should(HaveField("OwnerReferences", ContainElement(HaveField("UID", s.identity.UID))))
		Eventually(s.rig.Quiet(fake.Inspect)).WithPolling(time.Second).Should(BeTrue())
		s.rig.Hypervisor.Repair(fake.Inspect)
		return s
	}
	label := func(ctx context.Context, o client.Object) {
		GinkgoHelper()
		Expect(server.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		o.SetLabels(map[string]string{"team": "blue", corev1.LabelMetadataName: o.GetName()})
		Expect(server.Client.Update(ctx, o)).To(Succeed())
	}

	DescribeTable("is looked at again at once when", func(ctx SpecContext, change func(context.Context, scene)) {
		s := borrowing(ctx)
		By("changing unrelated fields")
		Expect(server.Client.Create(ctx, s.rig.Secret("account", nil))).To(Succeed(), "of the same name in its own namespace")
		other := &vspherev1.NovaVSphereIdentity{ObjectMeta: metav1.ObjectMeta{Name: s.managers}, Spec: s.identity.Spec}
		other.Spec.CredentialsSecretRef.Name = "another"
		Expect(server.Client.Create(ctx, other)).To(Succeed())
		Consistently(clusterOf(ctx, s.rig)).ShouldNot(beReady())
		By("changing related fields")
		change(ctx, s)
		Eventually(clusterOf(ctx, s.rig)).Should(beReady())
	},
		Entry("the identity's Secret is fixed", func(ctx context.Context, s scene) {
			before := s.secret.DeepCopy()
			s.secret.StringData = map[string]string{"password": "right"}
			Expect(server.Client.Patch(ctx, s.secret, client.MergeFrom(before))).To(Succeed())
		}),
		Entry("the identity allows it", func(ctx context.Context, s scene) {
			s.identity.Spec.AllowedNamespaces.List = []string{s.rig.Namespace}
			Expect(server.Client.Update(ctx, s.identity)).To(Succeed())
		}),
		Entry("the identity was deleted", func(ctx context.Context, s scene) {
			Expect(server.Client.Delete(ctx, s.identity)).To(Succeed())
		}),
		Entry("its namespace gets another label", func(ctx context.Context, s scene) {
			label(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.rig.Namespace}})
		}),
	)
})
