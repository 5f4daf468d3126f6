package hostile

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("A file of a tenant user's node", Ordered, ContinueOnFailure, func() {
	const (
		namespace = "red-files"
		// secret names a Secret and a ConfigMap of another tenant.
		secret = "not-for-files"
		value  = "another-value-that-only-blue-may-see"
	)
	var user client.Client

	BeforeAll(func(ctx context.Context) {
		user = tenantUser(ctx, namespace)
		withdraw(namespace)
		Expect(b.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: blue.Namespace, Name: secret}, StringData: map[string]string{"key": value},
		})).To(Succeed())
		Expect(b.Client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: blue.Namespace, Name: secret}, Data: map[string]string{"key": value},
		})).To(Succeed())
		bareCluster(ctx, user, namespace, "red", "192.0.2.1:6443")
	})

	// missed expects a condition that an object does not exist, and that no
	// Secret of the namespace holds the value of the other tenant.
	missed := func(ctx context.Context, o *unstructured.Unstructured) {
		GinkgoHelper()
		Eventually(said(o)).WithContext(ctx).Should(ContainSubstring("does not exist"))
		secrets := &corev1.SecretList{}
		Expect(b.Client.List(ctx, secrets, client.InNamespace(namespace))).To(Succeed())
		for i := range secrets.Items {
			for _, data := range secrets.Items[i].Data {
				Expect(string(data)).NotTo(ContainSubstring(value))
			}
		}
	}

	for kind, field := range map[string]string{"Secret": "secret", "ConfigMap": "configMap"} {
		It("holds no "+kind+" of another namespace", func(ctx context.Context) {
			missed(ctx, booting(ctx, user, namespace, "red", strings.ToLower(kind), []any{map[string]any{
				"path": "/etc/stolen", "contentFrom": map[string]any{field: map[string]any{"name": secret, "key": "key", "namespace": blue.Namespace}},
			}}))
		})

		It("holds no "+kind+" of another namespace by a path", func(ctx context.Context) {
			path := "../../" + blue.Namespace + "/" + strings.ToLower(kind) + "s/" + secret
			name := strings.ToLower(kind) + "-path"
			config := bootConfig(namespace, "red", name, []any{map[string]any{
				"path": "/etc/stolen", "contentFrom": map[string]any{field: map[string]any{"name": path, "key": "key"}},
			}})
			if err := user.Create(ctx, config); apierrors.IsInvalid(err) {
				return
			}
			bootMachine(ctx, user, namespace, "red", name)
			Eventually(said(config)).WithContext(ctx).Should(ContainSubstring("DataSecretAvailable=False"))
		})
	}
})
