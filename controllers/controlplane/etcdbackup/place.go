package etcdbackup

import (
	"cmp"
	"context"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	capisecret "sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/snapshots"
)

// settingError is a setting that the user has to fix.
type settingError struct{ problem string }

// Error implements error.
func (e *settingError) Error() string { return e.problem }

func settingErrorf(format string, args ...any) error {
	return &settingError{problem: fmt.Sprintf(format, args...)}
}

// openBucket opens the bucket with a cluster's snapshots. If keyOptional is true
// and the key that signs them does not exist, none of them is authentic.
func openBucket(ctx context.Context, c client.Reader, cluster client.ObjectKey, spec *controlplanev1.S3Spec, keyOptional bool) (*snapshots.Bucket, snapshots.Place, error) {
	place := snapshots.Place{
		Endpoint: spec.Endpoint, Bucket: spec.Bucket, Region: spec.Region, PathStyle: spec.PathStyle,
		Dir:       path.Join(spec.Prefix, cluster.Namespace, cluster.Name),
		Encrypted: spec.Encryption != "", KMSKeyID: spec.KMSKeyID,
	}
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: spec.CredentialsSecretRef.Name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, place, settingErrorf("Secret %s of s3.credentialsSecretRef does not exist", spec.CredentialsSecretRef.Name)
	}
	if err != nil {
		return nil, place, fmt.Errorf("reading credentials of bucket: %w", err)
	}
	place.AccessKeyID = string(secret.Data[controlplanev1.S3AccessKeyIDKey])
	place.SecretAccessKey = string(secret.Data[controlplanev1.S3SecretAccessKeyKey])
	place.SessionToken = string(secret.Data[controlplanev1.S3SessionTokenKey])
	if place.AccessKeyID == "" || place.SecretAccessKey == "" {
		return nil, place, settingErrorf("Secret %s of s3.credentialsSecretRef has no %s or no %s",
			secret.Name, controlplanev1.S3AccessKeyIDKey, controlplanev1.S3SecretAccessKeyKey)
	}
	if place.CA, err = readCA(ctx, c, cluster.Namespace, spec.TrustedCAFrom); err != nil {
		return nil, place, err
	}
	if place.Key, err = signingKey(ctx, c, cluster); err != nil && (!keyOptional || !apierrors.IsNotFound(err)) {
		return nil, place, err
	}
	bucket, err := snapshots.Open(place)
	if err != nil {
		return nil, place, &settingError{problem: err.Error()}
	}
	return bucket, place, nil
}

// signingKey returns the key that signs a cluster's snapshots. It is derived from the
// key of etcd's CA, or from that of service accounts if a StarVault has the key of the
// CA. A rotation of the CA keeps it. It moves with the cluster, and a control plane cannot be restored without it
// anyway.
func signingKey(ctx context.Context, c client.Reader, cluster client.ObjectKey) ([]byte, error) {
	for _, purpose := range []capisecret.Purpose{capisecret.EtcdCA, capisecret.ServiceAccount} {
		secret := &corev1.Secret{}
		name := capisecret.Name(cluster.Name, purpose)
		if err := c.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: name}, secret); err != nil {
			return nil, fmt.Errorf("reading Secret %s, whose key signs snapshots: %w", name, err)
		}
		if key := secret.Data[pki.SnapshotsKey]; len(key) > 0 {
			return key, nil
		}
		if key := secret.Data[capisecret.TLSKeyDataName]; len(key) > 0 {
			return pki.DeriveSnapshotsKey(key)
		}
	}
	return nil, settingErrorf("neither Secret %s nor %s has a key to sign snapshots with",
		capisecret.Name(cluster.Name, capisecret.EtcdCA), capisecret.Name(cluster.Name, capisecret.ServiceAccount))
}

// readCA reads the CA certificates that verify the bucket's server.
func readCA(ctx context.Context, c client.Reader, namespace string, from bootstrapv1.FileSource) ([]byte, error) {
	var content []byte
	var err error
	ref, kind := from.Secret, "Secret"
	switch {
	case from.Secret.Name != "":
		secret := &corev1.Secret{}
		err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, secret)
		content = secret.Data[ref.Key]
	case from.ConfigMap.Name != "":
		ref, kind = from.ConfigMap, "ConfigMap"
		configMap := &corev1.ConfigMap{}
		err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, configMap)
		content = []byte(configMap.Data[ref.Key])
	default:
		return nil, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading certificates of bucket: %w", err)
	}
	if len(content) == 0 {
		return nil, settingErrorf("%s %s of s3.trustedCAFrom has no key %s", kind, ref.Name, ref.Key)
	}
	return content, nil
}

// sourceCluster is the Cluster whose snapshot is restored.
func (s *restoreScope) sourceCluster() client.ObjectKey {
	return client.ObjectKey{Namespace: s.cluster.Namespace, Name: cmp.Or(s.restore.Spec.Source.Snapshot.Cluster, s.cluster.Name)}
}
