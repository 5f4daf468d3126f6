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

var _ = Describe("A reference of a tenant user", Ordered, ContinueOnFailure, func() {
	const (
		namespace = "red-references"
		// secret names a Secret and a ConfigMap of another tenant.
		secret = "not-for-red"
		value  = "a-value-that-only-blue-may-see"
	)
	var user client.Client

	BeforeAll(func(ctx context.Context) {
		user = tenantUser(ctx, namespace)
		withdraw(namespace)
		Expect(b.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: blue.Namespace, Name: secret}, StringData: map[string]string{"key": value, "username": value, "password": value},
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

	It("uses no template of another namespace", func(ctx context.Context) {
		plane := object(planeV, "NovaControlPlane", namespace, "red", nil)
		before := &unstructured.Unstructured{}
		before.SetGroupVersionKind(plane.GroupVersionKind())
		Expect(user.Get(ctx, client.ObjectKeyFromObject(plane), before)).To(Succeed())
		after := before.DeepCopy()
		Expect(unstructured.SetNestedField(after.Object, blue.Name+"-control-plane", "spec", "machineTemplate", "spec", "infrastructureRef", "name")).To(Succeed())
		Expect(unstructured.SetNestedField(after.Object, blue.Namespace, "spec", "machineTemplate", "spec", "infrastructureRef", "namespace")).To(Succeed())
		Expect(user.Patch(ctx, after, client.MergeFrom(before))).To(Succeed())
		Eventually(said(plane)).WithContext(ctx).Should(MatchRegexp(`(?i)` + blue.Name + `-control-plane.*(not found|does not exist)`))
	})

	It("opens no session with a Secret of another namespace", func(ctx context.Context) {
		center, err := b.VCenter(ctx)
		Expect(err).NotTo(HaveOccurred())
		infra := infraCluster("NovaVSphere", namespace, "secret", map[string]any{
			"server": center.Server, "tls": map[string]any{"thumbprint": center.Thumbprint},
			"identityRef": map[string]any{"kind": "Secret", "name": secret, "namespace": blue.Namespace},
		})
		clusterOf(ctx, user, infra)
		missed(ctx, infra)
	})

	It("opens no bucket with a Secret of another namespace", func(ctx context.Context) {
		server := listen(ctx, nil)
		restore := object(planeV, "NovaEtcdRestore", namespace, "bucket", map[string]any{
			"controlPlaneRef": map[string]any{"name": "red"},
			"source":          map[string]any{"snapshot": map[string]any{"name": "Latest"}},
			"s3":              map[string]any{"endpoint": server.URL, "bucket": "bucket", "credentials": map[string]any{"name": secret, "namespace": blue.Namespace}},
		})
		Expect(user.Create(ctx, restore)).To(Succeed())
		missed(ctx, restore)
		Expect(server.Connections()).To(BeEmpty())
	})

	It("boots no VM with a Secret of another namespace", func(ctx context.Context) {
		center, err := b.VCenter(ctx)
		Expect(err).NotTo(HaveOccurred())
		credentials := &corev1.Secret{StringData: map[string]string{"username": center.Username, "password": center.Password}}
		credentials.Namespace, credentials.Name = namespace, "own"
		Expect(user.Create(ctx, credentials)).To(Succeed())
		infra := infraCluster("NovaVSphere", namespace, "data", map[string]any{
			"server": center.Server, "tls": map[string]any{"thumbprint": center.Thumbprint},
			"identityRef": map[string]any{"kind": "Secret", "name": "own"},
			"placement":   map[string]any{"datacenter": "DC0", "resourcePool": allowedPool, "folder": "nova", "datastore": "LocalDS_0"},
		})
		clusterOf(ctx, user, infra)
		machine := object(coreV, "Machine", namespace, "data", map[string]any{
			"clusterName": "data", "bootstrap": map[string]any{"dataSecretName": secret},
			"infrastructureRef": reference(infraV, "NovaVSphereMachine", "data"),
		})
		o := object(infraV, "NovaVSphereMachine", namespace, "data", honestMachine(nil))
		for _, made := range []*unstructured.Unstructured{o, machine} {
			made.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "data"})
			Expect(user.Create(ctx, made)).To(Succeed())
		}
		missed(ctx, o)
	})
})
