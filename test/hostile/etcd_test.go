package hostile

import (
	"context"
	"net"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

// managementNetwork is a network that the administrator's flags deny.
const managementNetwork = "10.76.0.0/24"

var _ = Describe("An endpoint of external etcd", Ordered, ContinueOnFailure, func() {
	const namespace, name = "red-etcd", "red"
	// Addresses in the form that a tenant writes, by the address of the listener.
	refused := map[string]string{
		"127.0.0.1":       "127.0.0.1",
		"localhost":       "127.0.0.1",
		"169.254.169.254": "169.254.169.254",
		"10.76.0.1":       "10.76.0.1",
		// An IPv4 address in the spelling of IPv6.
		"::ffff:127.0.0.1": "127.0.0.1",
	}
	var (
		allowed *evil
		plane   *unstructured.Unstructured
		servers = map[string]*evil{}
	)

	// endpoint is the URL of a server whose address is spelled as a host.
	endpoint := func(e *evil, host string) string {
		GinkgoHelper()
		_, port, err := net.SplitHostPort(e.Address)
		Expect(err).NotTo(HaveOccurred())
		return "https://" + net.JoinHostPort(host, port)
	}

	BeforeAll(func(ctx context.Context) {
		user := tenantUser(ctx, namespace)
		withdraw(namespace)
		allowed = listen(ctx, nil)
		all := []any{allowed.URL}
		for host, address := range refused {
			if address != "127.0.0.1" {
				Expect(b.Inside(exec.CommandContext(ctx, "ip", "address", "replace", address+"/32", "dev", "lo").Run)).To(Succeed())
			}
			e := &evil{}
			e.serve(ctx, net.JoinHostPort(address, "0"), selfSigned(e, address), nil)
			servers[host] = e
			all = append(all, endpoint(e, host))
		}
		ownEtcd(ctx, user, namespace, name)
		plane = barePlane(namespace, name)
		Expect(unstructured.SetNestedSlice(plane.Object, all, "spec", "etcd", "external", "endpoints")).To(Succeed())
		Expect(user.Create(ctx, plane)).To(Succeed())
		Expect(user.Create(ctx, bareClusterObject(namespace, name, "192.0.2.1:6443"))).To(Succeed())
		By("dialing the endpoint that is allowed")
		Eventually(allowed.Connections).ShouldNot(BeEmpty())
	})

	for host := range refused {
		It("is not dialed at "+host+" [F8]", func(ctx context.Context) {
			Eventually(conditionsOf(plane)).WithContext(ctx).Should(ContainSubstring(
				"Endpoint " + endpoint(servers[host], host) + " cannot be used: " + endpoints.ErrDenied.Error()))
			Expect(servers[host].Connections()).To(BeEmpty())
		})
	}
})

// ownEtcd makes the Secrets by which a control plane reaches external etcd of the
// tenant's own.
func ownEtcd(ctx context.Context, as client.Client, namespace, cluster string) {
	GinkgoHelper()
	authority, theirs := pki.NewManaged(as), client.ObjectKey{Namespace: namespace, Name: "theirs"}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs"}}
	Expect(as.Create(ctx, owner)).To(Succeed())
	Expect(authority.Ensure(ctx, theirs, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}, 0)).To(Succeed())
	pair, ca, err := authority.EtcdClient(ctx, theirs, pki.ClientRequest{CommonName: "red", TTL: time.Hour})
	Expect(err).NotTo(HaveOccurred())
	for purpose, data := range map[secret.Purpose]map[string][]byte{
		secret.EtcdCA:              {secret.TLSCrtDataName: ca},
		secret.APIServerEtcdClient: {secret.TLSCrtDataName: pair.Certificate, secret.TLSKeyDataName: pair.Key},
	} {
		Expect(as.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secret.Name(cluster, purpose)}, Data: data,
		})).To(Succeed())
	}
}
