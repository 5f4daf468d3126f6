package hostile

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keepsake is a Secret and a ConfigMap of the other tenant, of the same name,
// with a value that no other namespace may get.
type keepsake struct{ name, value string }

// keep creates a keepsake.
func keep(ctx context.Context, name string) keepsake {
	GinkgoHelper()
	k := keepsake{name: name, value: name + "-and-only-for-blue"}
	meta := metav1.ObjectMeta{Namespace: blue.Namespace, Name: name}
	Expect(b.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: meta, StringData: map[string]string{"key": k.value, "username": k.value, "password": k.value},
	})).To(Succeed())
	Expect(b.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": k.value}})).To(Succeed())
	return k
}

// missed expects a condition of an object that the keepsake does not exist, and
// that no Secret of the object's namespace holds its value.
func (k keepsake) missed(ctx context.Context, o *unstructured.Unstructured) {
	GinkgoHelper()
	Eventually(conditionsOf(o)).WithContext(ctx).Should(ContainSubstring("does not exist"))
	secrets := &corev1.SecretList{}
	Expect(b.Client.List(ctx, secrets, client.InNamespace(o.GetNamespace()))).To(Succeed())
	for i := range secrets.Items {
		for _, data := range secrets.Items[i].Data {
			Expect(string(data)).NotTo(ContainSubstring(k.value))
		}
	}
}
