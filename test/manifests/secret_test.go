package manifests

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = DescribeTable("a Secret that a manager may hold a finalizer on", func(ctx SpecContext, dir string) {
	var user string
	for _, p := range Providers() {
		if p.Dir == dir {
			user = p.ServiceAccount()
		}
	}
	config := rest.CopyConfig(server.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	manager, err := client.New(config, client.Options{Scheme: server.Scheme})
	Expect(err).NotTo(HaveOccurred())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "account-"}}
	Expect(server.Client.Create(ctx, namespace)).To(Succeed())
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "account"}, Data: map[string][]byte{"password": []byte("secret")},
	}
	Expect(server.Client.Create(ctx, secret)).To(Succeed())
	write := func(by client.Client, change func(*corev1.Secret), options ...client.PatchOption) error {
		after := secret.DeepCopy()
		change(after)
		return by.Patch(ctx, after, client.MergeFrom(secret), options...)
	}

	// Rules and policies are enforced a moment after they were applied.
	for what, change := range map[string]func(*corev1.Secret){
		"data":        func(s *corev1.Secret) { s.Data["password"] = []byte("mine") },
		"more data":   func(s *corev1.Secret) { s.StringData = map[string]string{"more": "x"} },
		"labels":      func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} },
		"annotations": func(s *corev1.Secret) { s.Annotations = map[string]string{"a": "b"} },
		"immutable":   func(s *corev1.Secret) { s.Immutable = new(true) },
		"owners": func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "a", UID: "b"}}
		},
	} {
		Eventually(func() error { return write(manager, change, client.DryRunAll) }).WithTimeout(policyTimeout).Should(MatchError(ContainSubstring("may change only the finalizers of a Secret")), what)
	}
	finalize := func(s *corev1.Secret) { s.Finalizers = []string{"example.test/held"} }
	Eventually(func() error { return write(manager, finalize) }).WithTimeout(policyTimeout).Should(Succeed())
	Expect(write(server.Client, func(s *corev1.Secret) { s.Data["password"] = []byte("new") })).To(Succeed(), "everybody else")
},
	Entry("of vCenter", "nova-vsphere"),
	Entry("of an engine", "nova-zvirt"),
)
