package bootstrap

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// A NovaConfig must not deliver the credentials of others to a machine.
func TestPrivateSecrets(t *testing.T) {
	of := func(cluster string) map[string]string { return map[string]string{clusterv1.ClusterNameLabel: cluster} }
	for name, tc := range map[string]struct {
		secret  *corev1.Secret
		private bool
	}{
		"Content":             {secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "content"}}},
		"Authorities":         {secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "company-ca"}, Type: corev1.SecretTypeOpaque}},
		"Login":               {secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "corporate-proxy"}, Type: corev1.SecretTypeBasicAuth}},
		"ClusterSecret":       {secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "w-1"}, Type: clusterv1.ClusterSecretType}, private: true},
		"UsersAuthority":      {secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "blue-ca", Labels: of("blue")}, Type: corev1.SecretTypeTLS}, private: true},
		"UsersKubeconfig":     {secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "blue-kubeconfig"}, Type: corev1.SecretTypeOpaque}, private: true},
		"ServiceAccountToken": {secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Type: corev1.SecretTypeServiceAccountToken}, private: true},
		"BootstrapToken":      {secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Type: corev1.SecretTypeBootstrapToken}, private: true},
		"Restore":             {secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Type: controlplanev1.EtcdRestoreSecretType}, private: true},
		"Hypervisor": {secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: "vcenter", Finalizers: []string{"novavspherecluster.infrastructure.cluster.x-k8s.io/credentials"},
		}}, private: true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.secret.Namespace = "ns"
			tc.secret.Data = map[string][]byte{"username": []byte("hunter"), "password": []byte("hunter2")}
			r := &contentReader{clientfake.NewClientBuilder().WithObjects(tc.secret).Build()}
			_, ofFile := r.read(t.Context(), "ns", bootstrapv1.FileSource{Secret: bootstrapv1.KeyReference{Name: tc.secret.Name, Key: "password"}}, "a file")
			_, ofProxy := r.readLogin(t.Context(), client.ObjectKeyFromObject(tc.secret), "platform.proxy.credentialsSecretRef", false)
			for _, err := range []error{ofFile, ofProxy} {
				stop, stopped := errors.AsType[*reconcile.Outcome](err)
				if stopped != tc.private || !tc.private && err != nil {
					t.Fatalf("err = %v, want rejected: %t", err, tc.private)
				}
				if stopped && (stop.Reason != bootstrapv1.SourceNotFoundReason || !strings.Contains(stop.Message, "no machine may get these")) {
					t.Errorf("message lacks %s: %s", stop.Reason, stop.Message)
				}
			}
		})
	}
}
