package manifests

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = DescribeTable("a Secret with credentials, which a manager keeps and clusterctl moves,", func(ctx SpecContext, dir, kind string) {
	var account, home string
	for _, p := range Providers() {
		if p.Dir == dir {
			account, home = p.ServiceAccount(), p.Namespace()
		}
	}
	config := rest.CopyConfig(server.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: account}
	manager, err := client.New(config, client.Options{Scheme: server.Scheme})
	Expect(err).NotTo(HaveOccurred())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "account-"}}
	Expect(server.Client.Create(ctx, namespace)).To(Succeed())
	create := func(namespace string) *corev1.Secret {
		GinkgoHelper()
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, GenerateName: "account-", Labels: map[string]string{"team": "blue"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "theirs", UID: "theirs"}},
			},
			Data: map[string][]byte{"password": []byte("secret")},
		}
		Expect(server.Client.Create(ctx, s)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(server.Client.Delete(ctx, s)).To(Succeed()) })
		return s
	}
	tenants, managers := create(namespace.Name), create(home)
	write := func(by client.Client, secret *corev1.Secret, change func(*corev1.Secret)) error {
		after := secret.DeepCopy()
		change(after)
		return by.Patch(ctx, after, client.MergeFrom(secret), client.DryRunAll)
	}
	own := func(kind string) func(*corev1.Secret) {
		return func(s *corev1.Secret) {
			s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: kind, Name: "a", UID: "b"})
		}
	}

	// Rules and policies are enforced a moment after they were applied.
	refused := func(secret *corev1.Secret, what string, change func(*corev1.Secret), message string) {
		GinkgoHelper()
		Eventually(func() error { return write(manager, secret, change) }).WithTimeout(policyTimeout).Should(MatchError(ContainSubstring(message)), what)
	}
	allowed := func(secret *corev1.Secret, what string, change func(*corev1.Secret)) {
		GinkgoHelper()
		Eventually(func() error { return write(manager, secret, change) }).WithTimeout(policyTimeout).Should(Succeed(), what)
	}
	for _, secret := range []*corev1.Secret{tenants, managers} {
		for what, change := range map[string]func(*corev1.Secret){
			"data":            func(s *corev1.Secret) { s.Data["password"] = []byte("mine") },
			"more data":       func(s *corev1.Secret) { s.StringData = map[string]string{"more": "x"} },
			"another label":   func(s *corev1.Secret) { s.Labels["a"] = "b" },
			"a changed label": func(s *corev1.Secret) { s.Labels["team"] = "red" },
			"a removed label": func(s *corev1.Secret) { s.Labels = nil },
			"the hierarchy":   func(s *corev1.Secret) { s.Labels[clusterctlv1.ClusterctlMoveHierarchyLabel] = "" },
			"annotations":     func(s *corev1.Secret) { s.Annotations = map[string]string{"a": "b"} },
			"immutable":       func(s *corev1.Secret) { s.Immutable = new(true) },
		} {
			refused(secret, what, change, "may change only the finalizers of a Secret, its label for clusterctl move")
		}
		refused(secret, "another owner", own("NovaVSphereCluster"), "may change only owners of the kind "+kind)
		refused(secret, "the owners of others", func(s *corev1.Secret) { s.OwnerReferences = nil }, "may change only owners of the kind "+kind)
		allowed(secret, "a finalizer", func(s *corev1.Secret) { s.Finalizers = []string{"example.test/held"} })
		allowed(secret, "the label", func(s *corev1.Secret) { s.Labels[clusterctlv1.ClusterctlMoveLabel] = "" })
	}
	refused(tenants, "an identity", own(kind), "only of Secrets in its own namespace")
	allowed(managers, "an identity", own(kind))
	Expect(write(server.Client, tenants, func(s *corev1.Secret) { s.Data["password"] = []byte("new") })).To(Succeed(), "everybody else")
},
	Entry("of vCenter", "nova-vsphere", "NovaVSphereIdentity"),
	Entry("of an engine", "nova-zvirt", "NovaZVirtIdentity"),
	Entry("of Proxmox VE", "nova-proxmox", "NovaProxmoxIdentity"),
)
