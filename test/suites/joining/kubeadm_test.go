package joining

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// Under another control plane provider, machines join as they do under ours.
var _ = describeInFull("Machines of a KubeadmControlPlane", func() {
	It("join with their own credential, which is worthless afterwards", func(ctx context.Context) {
		c := bed.Cluster{
			Name: "kcp", Namespace: "kcp", Hypervisor: bed.VSphere, ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.63", KubeadmControlPlane: true,
		}
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Credentials(ctx, c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		deployment := find(objects, "MachineDeployment").GetName()
		joining := discovery(ctx, c.Namespace, deployment)
		machine := worker(ctx, c.Namespace, deployment)
		tenant, err := b.TenantClient(ctx, c.Key())
		Expect(err).NotTo(HaveOccurred())
		const signer = certificatesv1.KubeAPIServerClientKubeletSignerName
		Expect(ask(ctx, as(joining), tenant, signer, machine.Name, certificatesv1.UsageClientAuth)).
			To(HavePrefix("Denied: Machine " + machine.Name + " has joined already"))
		Expect(b.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}})).To(Succeed())
	})
})
