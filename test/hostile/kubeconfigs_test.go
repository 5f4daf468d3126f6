package hostile

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tenantToken is the token in the kubeconfigs of tenants.
const tenantToken = "tenant-token"

// kubeconfigOf is a kubeconfig with nothing wrong.
func kubeconfigOf(server *evil) *clientcmdapi.Config {
	return &clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"evil": {Server: server.URL, CertificateAuthorityData: server.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"evil": {Token: tenantToken}},
		Contexts:       map[string]*clientcmdapi.Context{"evil": {Cluster: "evil", AuthInfo: "evil"}},
		CurrentContext: "evil",
	}
}

// kubeconfigSecret is where managers look for the kubeconfig of a cluster.
func kubeconfigSecret(namespace, cluster string, config *clientcmdapi.Config) *corev1.Secret {
	GinkgoHelper()
	data, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: cluster + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
		},
		Data: map[string][]byte{"value": data},
	}
}

var _ = Describe("A server that a tenant's kubeconfig names", Ordered, ContinueOnFailure, func() {
	const namespace = "red-server"
	var server, other *evil

	BeforeAll(func(ctx context.Context) {
		other = listen(ctx, nil)
		server = listen(ctx, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		})
		bareCluster(ctx, tenantUser(ctx, namespace), namespace, "server", server.Address)
		Expect(ignoreExists(b.Client.Create(ctx, kubeconfigSecret(namespace, "server", kubeconfigOf(server))))).To(Succeed())
	})

	// own are the requests of this project's managers.
	own := func(e *evil) func() []string {
		return func() []string {
			var all []string
			for _, request := range e.Requests() {
				if strings.Contains(request, "User-Agent: nova-") {
					all = append(all, request)
				}
			}
			return all
		}
	}

	It("gets no other credential than the kubeconfig's own [F1]", func() {
		Eventually(own(server)).ShouldNot(BeEmpty())
		for _, request := range own(server)() {
			Expect(request).To(ContainSubstring("Authorization: Bearer " + tenantToken + "\r\n"))
		}
	})

	It("leads no manager to another server by a redirect [F8]", func() {
		Eventually(func() int { return len(own(server)()) }).Should(BeNumerically(">", 3))
		Expect(own(other)()).To(BeEmpty())
	})
})

var _ = Describe("A tenant user", Ordered, ContinueOnFailure, func() {
	const namespace = "red-policy"
	var user client.Client

	BeforeAll(func(ctx context.Context) { user = tenantUser(ctx, namespace) })

	forbidden := func(err error) {
		GinkgoHelper()
		Expect(err).To(HaveOccurred())
		Expect(apierrors.IsForbidden(err) || apierrors.IsInvalid(err)).To(BeTrue(), err.Error())
	}

	It("does not create the kubeconfig of a cluster [F1]", func(ctx context.Context) {
		forbidden(user.Create(ctx, kubeconfigSecret(namespace, "mine", kubeconfigOf(&evil{URL: "https://192.0.2.1"}))))
	})

	It("does not create one whose name the API server completes [F1]", func(ctx context.Context) {
		s := kubeconfigSecret(namespace, "mine", kubeconfigOf(&evil{URL: "https://192.0.2.1"}))
		s.Name, s.GenerateName = "", "mine-kubeconfig"
		Expect(user.Create(ctx, s)).To(Succeed(), "such a name is no cluster's")
		Expect(s.Name).NotTo(HaveSuffix("-kubeconfig"))
	})

	It("does not change the kubeconfig of a cluster [F1]", func(ctx context.Context) {
		made := kubeconfigSecret(namespace, "made", kubeconfigOf(&evil{URL: "https://192.0.2.1"}))
		Expect(b.Client.Create(ctx, made)).To(Succeed())
		changed := made.DeepCopy()
		changed.Data["value"] = []byte("{}")
		forbidden(user.Update(ctx, changed))
		forbidden(user.Patch(ctx, changed, client.MergeFrom(made)))
		Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(made), changed)).To(Succeed())
		Expect(changed.Data).To(Equal(made.Data))
	})

})
