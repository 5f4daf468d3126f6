package manifests

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("a Secret with a kubeconfig", Ordered, func() {
	const tenant = "tenant-of-kubeconfigs"
	var namespace string
	as := func(user string) client.Client {
		GinkgoHelper()
		config := rest.CopyConfig(server.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		c, err := client.New(config, client.Options{Scheme: server.Scheme})
		Expect(err).NotTo(HaveOccurred())
		return c
	}
	kubeconfig := func(name string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: clusterv1.ClusterSecretType,
			Data: map[string][]byte{"value": []byte("a")},
		}
	}
	grant := func(ctx SpecContext, user string, rules ...rbacv1.PolicyRule) {
		GinkgoHelper()
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "r-"}, Rules: rules}
		Expect(server.Client.Create(ctx, role)).To(Succeed())
		Expect(server.Client.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "r-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})).To(Succeed())
	}
	secrets := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}}
	guarded := MatchError(ContainSubstring("needs the permission to"))

	BeforeAll(func(ctx SpecContext) {
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kubeconfigs-"}}
		Expect(server.Client.Create(ctx, made)).To(Succeed())
		namespace = made.Name
		// All of Cluster API's kinds, as a customer may have them.
		grant(ctx, tenant, secrets, rbacv1.PolicyRule{
			APIGroups: []string{clusterGroup, controlPlaneGroup, infraGroup}, Resources: []string{"*"}, Verbs: []string{"*"},
		})
	})

	It("is not created or changed by a tenant", func(ctx SpecContext) {
		by := as(tenant)
		Eventually(func() error { return by.Create(ctx, kubeconfig("a-kubeconfig"), client.DryRunAll) }).WithTimeout(policyTimeout).Should(guarded)
		Expect(by.Create(ctx, kubeconfig("a-ca"))).To(Succeed(), "another Secret")

		made := kubeconfig("a-kubeconfig")
		Expect(server.Client.Create(ctx, made)).To(Succeed(), "by an administrator")
		for what, change := range map[string]func(*corev1.Secret){
			"data":         func(s *corev1.Secret) { s.Data = map[string][]byte{"value": []byte("b")} },
			"more data":    func(s *corev1.Secret) { s.StringData = map[string]string{"more": "b"} },
			"without data": func(s *corev1.Secret) { s.Data = nil },
		} {
			changed := made.DeepCopy()
			change(changed)
			Expect(by.Update(ctx, changed)).To(guarded, what)
			Expect(by.Patch(ctx, changed, client.MergeFrom(made))).To(guarded, what)
		}
		changed := made.DeepCopy()
		changed.Labels = map[string]string{"a": "b"}
		Expect(by.Update(ctx, changed)).To(Succeed(), "a label")
		Expect(by.Delete(ctx, changed)).To(Succeed())
	})

	It("is written by a user with the permission", func(ctx SpecContext) {
		const user = "operator-of-kubeconfigs"
		grant(ctx, user, secrets, rbacv1.PolicyRule{APIGroups: []string{"nova-platform.io"}, Resources: []string{"kubeconfigs"}, Verbs: []string{"write"}})
		by := as(user)
		made := kubeconfig("b-kubeconfig")
		Eventually(func() error { return client.IgnoreAlreadyExists(by.Create(ctx, made)) }).WithTimeout(policyTimeout).Should(Succeed())
		made.Data["value"] = []byte("b")
		Expect(by.Update(ctx, made)).To(Succeed())
	})

	DescribeTable("is written by", func(ctx SpecContext, user string) {
		grant(ctx, user, secrets)
		Eventually(func() error { return as(user).Create(ctx, kubeconfig("c-kubeconfig"), client.DryRunAll) }).WithTimeout(policyTimeout).Should(Succeed())
	},
		Entry("our control plane provider", "system:serviceaccount:nova-control-plane-system:nova-control-plane-manager"),
		Entry("Cluster API's core", "system:serviceaccount:capi-system:capi-manager"),
		Entry("Cluster API's control plane provider", "system:serviceaccount:capi-kubeadm-control-plane-system:capi-kubeadm-control-plane-manager"),
	)

	DescribeTable("is not written by", func(ctx SpecContext, user string) {
		grant(ctx, user, secrets)
		Eventually(func() error { return as(user).Create(ctx, kubeconfig("d-kubeconfig"), client.DryRunAll) }).WithTimeout(policyTimeout).Should(guarded)
	},
		Entry("our bootstrap provider", "system:serviceaccount:nova-bootstrap-system:nova-bootstrap-manager"),
		Entry("a namesake of Cluster API's core", "system:serviceaccount:tenants:capi-manager"),
	)
})
