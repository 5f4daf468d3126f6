package bootstrap_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// foreign creates a Cluster with another control plane provider.
func (b *bed) foreign(ctx context.Context, name, kind string) *clusterv1.Cluster {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{ObjectMeta: b.meta(name), Spec: clusterv1.ClusterSpec{
		ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "10.77.0.10", Port: 6443},
		ControlPlaneRef:      clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: kind, Name: name},
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereCluster", Name: name},
	}}
	Expect(b.Create(ctx, cluster)).To(Succeed())
	b.provision(ctx, cluster)
	return cluster
}

// tokenIn returns the bootstrap token with which a machine would join.
func tokenIn(data *corev1.Secret) (id, key string) {
	GinkgoHelper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(nodeConfig(data).Join.Kubeconfig))
	Expect(err).NotTo(HaveOccurred())
	Expect(config.CertData).To(BeEmpty())
	Expect(config.CAData).To(Equal(api.Config.CAData))
	id, key, found := strings.Cut(config.BearerToken, ".")
	Expect(found).To(BeTrue())
	return id, key
}

// token polls a bootstrap token in the workload cluster.
func token(ctx context.Context, id string) func() (*corev1.Secret, error) {
	return func() (*corev1.Secret, error) {
		found := &corev1.Secret{}
		return found, api.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}, found)
	}
}

var _ = Describe("A NovaConfig under another control plane provider", func() {
	It("joins a KubeadmControlPlane's cluster with a certificate of its CA", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		cluster := b.foreign(ctx, "blue", "KubeadmControlPlane")
		machine := b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{Platform: bootstrapv1.PlatformSpec{ImageRepository: "registry.example/k8s"}})
		Eventually(b.config(ctx, "w-1")).Should(haveState(metav1.ConditionFalse, bootstrapv1.WaitingForCertificatesReason, Not(BeEmpty())))
		b.certificates(ctx, cluster)
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
		data, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		own := expectOwnCertificate(ctx, b, cluster, data, "nova:machine:"+string(machine.UID))
		Expect(time.Until(own.NotAfter)).To(BeNumerically("~", 24*time.Hour, time.Minute))
	})

	DescribeTable("joins with its own token if the CA's key is not available, and the token is deleted after the join", func(ctx SpecContext, published bool) {
		b := newBed(ctx)
		b.run(0)
		b.foreign(ctx, "blue", "KamajiControlPlane")
		if published {
			ca := &corev1.Secret{ObjectMeta: b.meta("blue-ca"), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"tls.crt": api.Config.CAData}}
			ca.Labels = map[string]string{clusterv1.ClusterNameLabel: "blue"}
			Expect(b.Create(ctx, ca)).To(Succeed())
		}
		machine := b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		b.worker(ctx, "blue", "w-2", bootstrapv1.NovaConfigSpec{})
		reason := bootstrapv1.WaitingForCertificatesReason
		if published {
			reason = bootstrapv1.WaitingForAPIServerReason
		}
		Eventually(b.config(ctx, "w-1")).Should(haveState(metav1.ConditionFalse, reason, Not(BeEmpty())))
		// The manager has no own user without the CA's key.
		b.connectAs(ctx, "blue", api.Config, api.Config.Host, api.Config.CAData)
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
		Eventually(b.config(ctx, "w-2")).Should(beAvailable())

		data, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		id, key := tokenIn(data)
		other, err := b.secret(ctx, "w-2")()
		Expect(err).NotTo(HaveOccurred())
		otherID, _ := tokenIn(other)
		Expect(otherID).NotTo(Equal(id), "each machine has a token of its own")
		held, err := token(ctx, id)()
		Expect(err).NotTo(HaveOccurred())
		Expect(held.Type).To(Equal(corev1.SecretTypeBootstrapToken))
		Expect(held.Data).To(HaveKeyWithValue("token-secret", []byte(key)))
		Expect(held.Data).To(HaveKeyWithValue("auth-extra-groups", []byte("system:bootstrappers:nova")))
		Expect(held.Data).NotTo(HaveKey("usage-bootstrap-signing"))
		until, err := time.Parse(time.RFC3339, string(held.Data["expiration"]))
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Until(until)).To(BeNumerically("~", time.Hour, time.Minute))

		By("requesting a certificate for its own node and for another")
		own := as("system:bootstrap:"+id, "system:bootstrappers:nova")
		const signer = certificatesv1.KubeAPIServerClientKubeletSignerName
		Eventually(decisionOn(ctx, ask(ctx, own, signer, "w-2", certificatesv1.UsageClientAuth))).Should(HavePrefix("Denied: The credential of Machine w-1"))
		Eventually(decisionOn(ctx, ask(ctx, own, signer, "w-1", certificatesv1.UsageClientAuth))).Should(HavePrefix("Approved"))

		By("extending the token when the data is due, without new data")
		stale := data.DeepCopy()
		stale.Annotations["nova.bootstrap.cluster.x-k8s.io/refresh-after"] = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
		Expect(b.Patch(ctx, stale, client.MergeFrom(data))).To(Succeed())
		Eventually(b.secret(ctx, "w-1")).Should(HaveField("Annotations", HaveKeyWithValue("nova.bootstrap.cluster.x-k8s.io/refresh-after", Not(Equal(stale.Annotations["nova.bootstrap.cluster.x-k8s.io/refresh-after"])))))
		Expect(b.secret(ctx, "w-1")()).To(HaveField("Data", Equal(data.Data)))

		By("joining")
		b.patchMachine(ctx, machine, func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: "w-1"} })
		Eventually(func() bool { return apierrors.IsNotFound(lastOf(token(ctx, id))) }).Should(BeTrue())
		Expect(token(ctx, otherID)()).NotTo(BeNil())
	},
		Entry("with the CA's certificate alone", true),
		Entry("with only a kubeconfig", false),
	)
})

// lastOf returns the error of a read.
func lastOf[T any](look func() (T, error)) error {
	_, err := look()
	return err
}
