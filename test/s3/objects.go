package s3

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

const (
	// Prefix is the folder of the bucket that Snapshots names.
	Prefix = "bed"
	// SecretName is the name of the Secret of Login.
	SecretName = "snapshots"
)

// Login returns the Secret with the server's credentials and certificate.
func (s *Server) Login(namespace string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName}, Data: map[string][]byte{
		controlplanev1.S3AccessKeyIDKey: []byte(s.AccessKeyID), controlplanev1.S3SecretAccessKeyKey: []byte(s.SecretAccessKey),
		"ca.crt": s.CA,
	}}
}

// Snapshots returns spec.etcd.snapshots of a NovaControlPlane whose snapshots
// are stored in the bucket, and which uses the Secret of Login.
func (s *Server) Snapshots() map[string]any {
	return map[string]any{
		"schedule":  "0 3 * * *",
		"retention": map[string]any{"count": int64(3)},
		"s3": map[string]any{
			"endpoint": s.Endpoint, "bucket": Bucket, "prefix": Prefix,
			"credentialsSecretRef": map[string]any{"name": SecretName},
			"trustedCAFrom":        map[string]any{"secret": map[string]any{"name": SecretName, "key": "ca.crt"}},
		},
	}
}
