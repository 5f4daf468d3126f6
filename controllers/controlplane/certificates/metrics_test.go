package certificates

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-api/util/secret"
)

func TestKubeconfigExpires(t *testing.T) {
	g := NewWithT(t)
	write := func(user *clientcmdapi.AuthInfo) *corev1.Secret {
		data, err := clientcmd.Write(clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "https://127.0.0.1:6443"}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": user},
			Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
			CurrentContext: "x",
		})
		g.Expect(err).NotTo(HaveOccurred())
		return &corev1.Secret{Data: map[string][]byte{secret.KubeconfigDataName: data}}
	}
	expires := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	pair := selfSigned(t, expires)
	g.Expect(kubeconfigExpires(write(&clientcmdapi.AuthInfo{ClientCertificateData: pair, ClientKeyData: []byte("k")}))).To(Equal(expires))
	g.Expect(kubeconfigExpires(write(&clientcmdapi.AuthInfo{Token: "t"}))).To(BeZero())
	g.Expect(kubeconfigExpires(&corev1.Secret{})).To(BeZero())
	g.Expect(kubeconfigExpires(nil)).To(BeZero())
	g.Expect(pemExpires([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))).To(BeZero())
}
