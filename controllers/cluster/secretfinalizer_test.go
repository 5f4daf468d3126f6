package cluster_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

var _ = Describe("A Secret with the credentials of clusters", func() {
	hasFinalizer := infrav1.CredentialsFinalizer("NovaVSphereCluster")

	secretOf := func(ctx context.Context, rig *infratest.Rig) func() (*corev1.Secret, error) {
		return func() (*corev1.Secret, error) {
			s := &corev1.Secret{}
			err := rig.Client.Get(ctx, client.ObjectKey{Namespace: rig.Namespace, Name: infratest.CredentialsName}, s)
			return s, err
		}
	}
	beHeld := HaveField("Finalizers", ConsistOf(hasFinalizer))
	beFree := HaveField("Finalizers", BeEmpty())
	change := func(ctx context.Context, rig *infratest.Rig, c *vspherev1.NovaVSphereCluster, edit func()) {
		GinkgoHelper()
		Expect(rig.Client.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		before := c.DeepCopy()
		edit()
		Expect(rig.Client.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
	}
	// second is another cluster that references the same Secret.
	second := func(rig *infratest.Rig) *vspherev1.NovaVSphereCluster {
		c := rig.InfraCluster()
		c.Name, c.Labels = "second", nil
		return c
	}

	It("outlives its own deletion, as that of its namespace, until no VM needs it", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Expect(rig.CreateAll(ctx)).To(Succeed())
		Eventually(func() bool { return rig.Hypervisor.Exists(rig.Key()) }).Should(BeTrue())
		// The controllers start one after another.
		Eventually(clusterOf(ctx, rig)).Should(beReady())
		Eventually(secretOf(ctx, rig)).Should(beHeld)

		Expect(rig.Client.Delete(ctx, rig.Secret(infratest.CredentialsName, nil))).To(Succeed())
		Expect(rig.Client.Delete(ctx, rig.InfraCluster())).To(Succeed())
		Eventually(clusterOf(ctx, rig)).Should(have(clusterv1.ReadyCondition, metav1.ConditionFalse, infrav1.WaitingForMachinesReason, Not(BeEmpty())))
		Consistently(secretOf(ctx, rig)).Should(And(beHeld, HaveField("Data", HaveKey("password"))))

		Expect(rig.Client.Delete(ctx, rig.InfraMachine())).To(Succeed())
		Eventually(deleted(ctx, rig, rig.InfraCluster())).Should(beGone())
		Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
		Eventually(deleted(ctx, rig, rig.Secret(infratest.CredentialsName, nil))).Should(beGone())
	})

	It("keeps its finalizer while any cluster names it, and gets one if it is created later", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		one, two := rig.InfraCluster(), second(rig)
		Expect(rig.Client.Create(ctx, two)).To(Succeed())
		Expect(rig.CreateCluster(ctx, rig.Cluster(), one)).To(Succeed())
		Eventually(secretOf(ctx, rig)).Should(beHeld)

		By("naming an identity instead, whose Secret lies elsewhere")
		change(ctx, rig, one, func() {
			one.Spec.IdentityRef = infrav1.IdentityReference{Kind: vspherev1.NovaVSphereIdentityKind, Name: infratest.CredentialsName}
			one.Spec.Server = ""
		})
		Consistently(secretOf(ctx, rig)).Should(beHeld)
		Expect(rig.Client.Delete(ctx, two)).To(Succeed())
		Eventually(secretOf(ctx, rig)).Should(beFree)

		By("naming it again")
		change(ctx, rig, one, func() {
			one.Spec.IdentityRef = infrav1.IdentityReference{Name: infratest.CredentialsName}
			one.Spec.Server = "vcenter.example.test"
		})
		Eventually(secretOf(ctx, rig)).Should(beHeld)
		change(ctx, rig, one, func() { one.Spec.IdentityRef.Name = "another" })
		Eventually(secretOf(ctx, rig)).Should(beFree)
	})

	It("is released by a manager that was not running", func(ctx SpecContext) {
		rig := newRig(ctx)
		secret := rig.Secret(infratest.CredentialsName, nil)
		secret.Finalizers = []string{hasFinalizer, "example.test/theirs"}
		Expect(rig.Client.Create(ctx, secret)).To(Succeed())
		Expect(rig.Run(infratest.Options{})).To(Succeed())
		Eventually(secretOf(ctx, rig)).Should(HaveField("Finalizers", ConsistOf("example.test/theirs")))
	})

	It("is kept for objects that a manager watches, and released for no other reason", func(ctx SpecContext) {
		rig := newRig(ctx)
		Expect(rig.Run(infratest.Options{WatchFilter: "blue"})).To(Succeed())
		one, two := rig.InfraCluster(), second(rig)
		Expect(rig.CreateCluster(ctx, rig.Cluster(), one)).To(Succeed())
		Expect(rig.Client.Create(ctx, two)).To(Succeed())
		Consistently(secretOf(ctx, rig)).Should(beFree)
		change(ctx, rig, two, func() { two.Labels = map[string]string{clusterv1.WatchLabel: "blue"} })
		Eventually(secretOf(ctx, rig)).Should(beHeld)
		Expect(rig.Client.Delete(ctx, two)).To(Succeed())
		Eventually(deleted(ctx, rig, second(rig))).Should(beGone())
		Consistently(secretOf(ctx, rig)).Should(beHeld)
		Expect(rig.Client.Delete(ctx, one)).To(Succeed())
		Eventually(secretOf(ctx, rig)).Should(beFree)
	})

	Context("moved by clusterctl", func() {
		labels := func(labels map[string]string) gomegatypes.GomegaMatcher {
			return HaveField("Labels", BeEquivalentTo(labels))
		}
		unlabeled := HaveField("Labels", Not(HaveKey(clusterctlv1.ClusterctlMoveLabel)))

		It("has the label for it while a cluster names it, and other labels are kept", func(ctx SpecContext) {
			rig := newRig(ctx)
			secret := rig.Secret(infratest.CredentialsName, nil)
			secret.Labels = map[string]string{"team": "blue"}
			Expect(rig.Client.Create(ctx, secret)).To(Succeed())
			Expect(rig.Run(infratest.Options{})).To(Succeed())
			Consistently(secretOf(ctx, rig)).Should(unlabeled)
			one := rig.InfraCluster()
			Expect(rig.Client.Create(ctx, one)).To(Succeed())
			Eventually(secretOf(ctx, rig)).Should(labels(map[string]string{"team": "blue", clusterctlv1.ClusterctlMoveLabel: ""}))

			By("removing the label by hand")
			s, err := secretOf(ctx, rig)()
			Expect(err).NotTo(HaveOccurred())
			before := s.DeepCopy()
			delete(s.Labels, clusterctlv1.ClusterctlMoveLabel)
			Expect(rig.Client.Patch(ctx, s, client.MergeFrom(before))).To(Succeed())
			Eventually(secretOf(ctx, rig)).Should(labels(map[string]string{"team": "blue", clusterctlv1.ClusterctlMoveLabel: ""}))

			By("naming another Secret")
			change(ctx, rig, one, func() { one.Spec.IdentityRef.Name = "another" })
			Eventually(secretOf(ctx, rig)).Should(And(labels(map[string]string{"team": "blue"}), beFree))
		})

		It("is kept and released also if the API server rejects the label", func(ctx SpecContext) {
			rig := newRig(ctx)
			Expect(rig.Client.Create(ctx, rig.Secret(infratest.CredentialsName, nil))).To(Succeed())
			policy := &admissionv1.ValidatingAdmissionPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: rig.Namespace},
				Spec: admissionv1.ValidatingAdmissionPolicySpec{
					MatchConstraints: &admissionv1.MatchResources{
						NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: rig.Namespace}},
						ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
							Operations: []admissionv1.OperationType{admissionv1.Update},
							Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
						}}},
					},
					Validations: []admissionv1.Validation{{
						Expression: `!("` + clusterctlv1.ClusterctlMoveLabel + `" in object.metadata.?labels.orValue({}))`,
					}},
				},
			}
			binding := &admissionv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: rig.Namespace},
				Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: rig.Namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
				},
			}
			for _, o := range []client.Object{policy, binding} {
				Expect(rig.Client.Create(ctx, o)).To(Succeed())
				DeferCleanup(func(ctx SpecContext) { Expect(rig.Client.Delete(ctx, o)).To(Succeed()) })
			}
			Eventually(func() error {
				s, err := secretOf(ctx, rig)()
				if err != nil {
					return err
				}
				s.Labels = map[string]string{clusterctlv1.ClusterctlMoveLabel: ""}
				return rig.Client.Update(ctx, s, client.DryRunAll)
			}).Should(MatchError(apierrors.IsInvalid, "the policy is in effect"))

			Expect(rig.Run(infratest.Options{})).To(Succeed())
			one := rig.InfraCluster()
			Expect(rig.Client.Create(ctx, one)).To(Succeed())
			Eventually(secretOf(ctx, rig)).Should(And(beHeld, unlabeled))
			change(ctx, rig, one, func() { one.Spec.IdentityRef.Name = "another" })
			Eventually(secretOf(ctx, rig)).Should(beFree)
		})

		It("keeps the label that a user has set, and its value", func(ctx SpecContext) {
			rig := newRig(ctx)
			theirs := map[string]string{clusterctlv1.ClusterctlMoveLabel: "by-hand"}
			secret := rig.Secret(infratest.CredentialsName, nil)
			secret.Labels = theirs
			Expect(rig.Client.Create(ctx, secret)).To(Succeed())
			Expect(rig.Run(infratest.Options{})).To(Succeed())
			one := rig.InfraCluster()
			Expect(rig.Client.Create(ctx, one)).To(Succeed())
			Eventually(secretOf(ctx, rig)).Should(And(labels(theirs), beHeld))
			change(ctx, rig, one, func() { one.Spec.IdentityRef.Name = "another" })
			Eventually(secretOf(ctx, rig)).Should(And(labels(theirs), beFree))
		})

		It("belongs to the identities that name it, and has no label", func(ctx SpecContext) {
			rig := newRig(ctx)
			managers := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "managers-"}}
			Expect(rig.Client.Create(ctx, managers)).To(Succeed())
			identity := func(name string) *vspherev1.NovaVSphereIdentity {
				GinkgoHelper()
				i := &vspherev1.NovaVSphereIdentity{
					ObjectMeta: metav1.ObjectMeta{Name: managers.Name + name},
					Spec: vspherev1.NovaVSphereIdentitySpec{IdentitySpec: infrav1.IdentitySpec{
						Server: "vcenter.example.test", CredentialsSecretRef: infrav1.IdentitySecretReference{Name: managers.Name},
					}},
				}
				Expect(rig.Client.Create(ctx, i)).To(Succeed())
				DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(rig.Client.Delete(ctx, i))).To(Succeed()) })
				return i
			}
			account := func(namespace string) *corev1.Secret {
				return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: managers.Name}}
			}
			accountIn := func(namespace string) func() (*corev1.Secret, error) {
				return func() (*corev1.Secret, error) {
					s := account(namespace)
					err := rig.Client.Get(ctx, client.ObjectKeyFromObject(s), s)
					return s, err
				}
			}
			ownedBy := func(owners ...*vspherev1.NovaVSphereIdentity) gomegatypes.GomegaMatcher {
				var refs []any
				for _, o := range owners {
					refs = append(refs, Equal(metav1.OwnerReference{
						APIVersion: infrav1.GroupVersion.String(), Kind: vspherev1.NovaVSphereIdentityKind, Name: o.Name, UID: o.UID,
					}))
				}
				return And(HaveField("OwnerReferences", ConsistOf(refs...)), unlabeled, beFree)
			}
			one := identity("-one")
			Expect(rig.Run(infratest.Options{ManagerNamespace: managers.Name})).To(Succeed())

			By("creating the Secret after the identity")
			Expect(rig.Client.Create(ctx, account(managers.Name))).To(Succeed())
			Expect(rig.Client.Create(ctx, account(rig.Namespace))).To(Succeed(), "of the same name in another namespace")
			Eventually(accountIn(managers.Name)).Should(ownedBy(one))

			By("creating a second identity with the same Secret")
			two := identity("-two")
			Eventually(accountIn(managers.Name)).Should(ownedBy(one, two))

			By("naming another Secret in one of them")
			one.Spec.CredentialsSecretRef.Name = "another"
			Expect(rig.Client.Update(ctx, one)).To(Succeed())
			Eventually(accountIn(managers.Name)).Should(ownedBy(two))

			By("deleting the other, so that Kubernetes deletes the Secret")
			Expect(rig.Client.Delete(ctx, two)).To(Succeed())
			Consistently(accountIn(managers.Name)).Should(ownedBy(two), "no garbage collector runs here")
			Consistently(accountIn(rig.Namespace)).Should(ownedBy())
		})
	})
})
