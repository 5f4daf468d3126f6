package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

var _ = describeFull("A control plane that is scaled", func() {
	c := cluster("scaled", 20, 1, 0)

	It("starts with one, and scales to three, five, three and one", func(ctx context.Context) {
		create(ctx, c)
		for _, replicas := range []int{3, 5, 3, 1} {
			scale(ctx, c, replicas)
		}
	})

	It("lets a machine go that is deleted while it joins", func(ctx context.Context) {
		c.ControlPlanes = 3
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Replicas = ptr.To(int32(3)) })
		members, err := b.Etcd(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		var joining string
		Eventually(func(g Gomega, ctx context.Context) {
			health, err := members.Health(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			for _, machine := range machines(ctx, c) {
				if !machine.Status.NodeRef.IsDefined() && slices.ContainsFunc(health.Members, func(m etcd.Member) bool { return m.Name == machine.Name }) {
					joining = machine.Name
				}
			}
			g.Expect(joining).NotTo(BeEmpty())
		}).WithContext(ctx).WithTimeout(bootTimeout).WithPolling(100 * time.Millisecond).Should(Succeed())
		remove(ctx, c, joining)
		replaced(ctx, c, joining)
	})

	It("leaves nothing when it is deleted", func(ctx context.Context) {
		deleteCluster(ctx, c)
	})
})

var _ = describeFull("A control plane of five with its user's authorities", func() {
	c := cluster("five", 21, 5, 0)
	var own secret.Certificates

	It("comes up at once", func(ctx context.Context) {
		own = bringAuthorities(ctx, c)
		create(ctx, c)
	})

	It("is signed for by them, and they stay the user's", func(ctx context.Context) {
		roots := x509.NewCertPool()
		Expect(roots.AppendCertsFromPEM(own.GetByPurpose(secret.ClusterCA).KeyPair.Cert)).To(BeTrue())
		conn, err := b.Dial(ctx, "tcp", net.JoinHostPort(c.Endpoint, "6443"))
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = conn.Close() }()
		Expect(tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: c.Endpoint}).HandshakeContext(ctx)).To(Succeed())
		expectAuthorities(ctx, c, own)
	})

	It("leaves nothing but them when it is deleted", func(ctx context.Context) {
		deleteCluster(ctx, c)
		expectAuthorities(ctx, c, own)
	})
})

// bringAuthorities makes the Secrets of a cluster's authorities before the
// cluster, as a user does who has some.
func bringAuthorities(ctx context.Context, c *bed.Cluster) secret.Certificates {
	GinkgoHelper()
	Expect(b.Credentials(ctx, *c)).To(Succeed(), "which makes the namespace")
	own := secret.NewCertificatesForInitialControlPlane(nil)
	Expect(own.Generate()).To(Succeed())
	for _, certificate := range own {
		s := certificate.AsSecret(c.Key(), metav1.OwnerReference{})
		// One of Cluster API's type counts as created by the provider.
		s.OwnerReferences, s.Type = nil, corev1.SecretTypeOpaque
		Expect(b.Client.Create(ctx, s)).To(Succeed())
	}
	return own
}

// expectAuthorities looks whether a user's authorities are as they were made.
func expectAuthorities(ctx context.Context, c *bed.Cluster, own secret.Certificates) {
	GinkgoHelper()
	for _, certificate := range own {
		is, was := &corev1.Secret{}, certificate.AsSecret(c.Key(), metav1.OwnerReference{})
		Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(was), is)).To(Succeed())
		Expect(is.Data).To(Equal(was.Data), is.Name)
		Expect(is.OwnerReferences).To(BeEmpty(), is.Name)
	}
}

var _ = describeFull("A control plane machine that is deleted by hand", func() {
	c, p := cluster("removed", 22, 3, 0), &promises{}

	BeforeAll(func(ctx context.Context) {
		create(ctx, c)
	})

	// replace deletes a machine whose host is in some state.
	replace := func(ctx context.Context, name string) {
		GinkgoHelper()
		started := time.Now()
		keepingQuorum(ctx, c, func() {
			remove(ctx, c, name)
			replaced(ctx, c, name)
		})
		figuref("replaced in %.0f s", time.Since(started).Seconds())
	}

	It("is replaced, and the API is hardly missed although it had the address", func(ctx context.Context) {
		seen := probing(ctx, c, func() { replace(ctx, holder(ctx, c)) })
		p.withinf(plannedLoss, seen.Longest().Length, "API during the planned replacement of the address's holder: %s", seen)
	})

	It("is replaced although its VM is deleted", func(ctx context.Context) {
		victim := names(ctx, c)[0]
		destroy(ctx, c, victim)
		replace(ctx, victim)
	})

	It("is replaced though its kubelet is dead", func(ctx context.Context) {
		victim := names(ctx, c)[1]
		_, err := b.Exec(ctx, victim, "systemctl", "disable", "--now", "kubelet")
		Expect(err).NotTo(HaveOccurred())
		replace(ctx, victim)
	})

	It("is replaced though its Node was deleted", func(ctx context.Context) {
		victim := names(ctx, c)[2]
		tenant, err := b.TenantClient(ctx, c.Key())
		Expect(err).NotTo(HaveOccurred())
		Expect(tenant.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: victim}})).To(Succeed())
		replace(ctx, victim)
	})

	It("keeps quorum when two of three are deleted at once", func(ctx context.Context) {
		victims := names(ctx, c)[:2]
		keepingQuorum(ctx, c, func() {
			for _, victim := range victims {
				remove(ctx, c, victim)
			}
			replaced(ctx, c, victims...)
		})
	})

	It("leaves no member in etcd although a user removed its finalizers and hooks", func(ctx context.Context) {
		victim := names(ctx, c)[0]
		keepingQuorum(ctx, c, func() {
			remove(ctx, c, victim)
			tear(ctx, c, victim)
			replaced(ctx, c, victim)
		})
	})

	It("leaves nothing when the cluster is deleted", func(ctx context.Context) {
		deleteCluster(ctx, c)
	})

	p.kept()
})

// tear removes all finalizers and hooks from a machine that block its deletion, as an impatient
// user does, and deletes its VM.
func tear(ctx context.Context, c *bed.Cluster, name string) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error {
		machine := &clusterv1.Machine{}
		err := b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, machine)
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		before := machine.DeepCopy()
		machine.Annotations, machine.Finalizers = nil, slices.Delete(machine.Finalizers, 0, len(machine.Finalizers))
		return b.Client.Patch(ctx, machine, client.MergeFrom(before))
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
}
