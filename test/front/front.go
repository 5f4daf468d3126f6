// Package front is a server at the endpoint of a workload cluster, for tests of
// health probes. It can reject, hang and fail as an API server does.
package front

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
)

// lease is the name of kube-vip's lease.
const lease = "plndr-cp-lock"

const leaseOfN1 = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","spec":{"holderIdentity":"n1","renewTime":"2026-01-01T00:00:00.000000Z"}}`

// Front is a server at the endpoint of a workload cluster.
type Front struct {
	Server *httptest.Server
	// Token is the accepted token.
	Token atomic.Value
	// Hangs is the prefix of paths without a response, if it is not empty.
	Hangs atomic.Value
	// NoLeases means no leases, and an error that is not Kubernetes' own.
	NoLeases atomic.Bool
}

// New starts a server that stops with the spec.
func New() *Front {
	f := &Front{}
	f.Token.Store("first")
	f.Hangs.Store("")
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs, _ := f.Hangs.Load().(string); hangs != "" && strings.HasPrefix(r.URL.Path, hangs) {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer "+f.Token.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if f.NoLeases.Load() && strings.HasSuffix(r.URL.Path, lease) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if strings.HasSuffix(r.URL.Path, lease) {
			_, _ = w.Write([]byte(leaseOfN1))
		}
	}))
	ginkgo.DeferCleanup(func() {
		f.Server.CloseClientConnections()
		f.Server.Close()
	})
	return f
}

// Kubeconfig returns a Secret with a token for the front.
func (f *Front) Kubeconfig(namespace, cluster, token string) *corev1.Secret {
	ginkgo.GinkgoHelper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Server.Certificate().Raw})
	data, err := clientcmd.Write(clientcmdapi.Config{
		// The certificate of the test's server has this name.
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: f.Server.URL, CertificateAuthorityData: ca, TLSServerName: "example.com"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: secret.Name(cluster, secret.Kubeconfig), Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{secret.KubeconfigDataName: data},
	}
}
