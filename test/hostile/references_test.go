package hostile

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("A reference of a tenant user", Ordered, ContinueOnFailure, func() {
	const namespace = "red-references"
	var (
		user client.Client
		kept keepsake
	)

	BeforeAll(func(ctx context.Context) {
		user = tenantUser(ctx, namespace)
		withdraw(namespace)
		kept = keep(ctx, "not-for-red")
		bareCluster(ctx, user, namespace, "red", "192.0.2.1:6443")
	})

	It("uses no template of another namespace", func(ctx context.Context) {
		plane := object(planeV, "NovaControlPlane", namespace, "red", nil)
		before := &unstructured.Unstructured{}
		before.SetGroupVersionKind(plane.GroupVersionKind())
		Expect(user.Get(ctx, client.ObjectKeyFromObject(plane), before)).To(Succeed())
		after := before.DeepCopy()
		Expect(unstructured.SetNestedField(after.Object, blue.Name+"-control-plane", "spec", "machineTemplate", "spec", "infrastructureRef", "name")).To(Succeed())
		Expect(unstructured.SetNestedField(after.Object, blue.Namespace, "spec", "machineTemplate", "spec", "infrastructureRef", "namespace")).To(Succeed())
		Expect(user.Patch(ctx, after, client.MergeFrom(before))).To(Succeed())
		Eventually(conditionsOf(plane)).WithContext(ctx).Should(MatchRegexp(`(?i)` + blue.Name + `-control-plane.*(not found|does not exist)`))
	})

	It("opens no session with a Secret of another namespace", func(ctx context.Context) {
		center, err := b.VCenter(ctx)
		Expect(err).NotTo(HaveOccurred())
		infra := infraCluster("NovaVSphere", namespace, "secret", map[string]any{
			"server": center.Server, "tls": map[string]any{"thumbprint": center.Thumbprint},
			"identityRef": map[string]any{"kind": "Secret", "name": kept.name, "namespace": blue.Namespace},
		})
		clusterOf(ctx, user, infra)
		kept.missed(ctx, infra)
	})

	It("opens no bucket with a Secret of another namespace", func(ctx context.Context) {
		server := listen(ctx, nil)
		restore := object(planeV, "NovaEtcdRestore", namespace, "bucket", map[string]any{
			"controlPlaneRef": map[string]any{"name": "red"},
			"source":          map[string]any{"snapshot": map[string]any{"name": "Latest"}},
			"s3":              map[string]any{"endpoint": server.URL, "bucket": "bucket", "credentialsSecretRef": map[string]any{"name": kept.name, "namespace": blue.Namespace}},
		})
		Expect(user.Create(ctx, restore)).To(Succeed())
		kept.missed(ctx, restore)
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
			"clusterName": "data", "bootstrap": map[string]any{"dataSecretName": kept.name},
			"infrastructureRef": reference(infraV, "NovaVSphereMachine", "data"),
		})
		o := object(infraV, "NovaVSphereMachine", namespace, "data", honestMachine(nil))
		for _, made := range []*unstructured.Unstructured{o, machine} {
			made.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "data"})
			Expect(user.Create(ctx, made)).To(Succeed())
		}
		kept.missed(ctx, o)
	})
})
