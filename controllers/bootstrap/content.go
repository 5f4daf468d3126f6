package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clustersecret "sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// contentReader reads the Secrets and ConfigMaps that a spec references.
type contentReader struct{ client client.Reader }

// readContent copies the content that files reference in Secrets and ConfigMaps into the spec, and
// reads the Secrets that users reference.
func (r *contentReader) readContent(ctx context.Context, s *scope) error {
	s.spec = *s.config.Spec.NodeConfigSpec.DeepCopy()
	for i := range s.spec.Files {
		file := &s.spec.Files[i]
		if isZero(file.ContentFrom) {
			continue
		}
		content, err := r.read(ctx, s.config.Namespace, file.ContentFrom, "a file")
		if err != nil {
			return err
		}
		// The source reference stays: the content of a Secret must not be quoted.
		file.Content = string(content)
	}
	s.passwordHashes = map[string]string{}
	for i := range s.spec.Users {
		user := &s.spec.Users[i]
		if isZero(user.PasswordHashSecretRef) {
			continue
		}
		hash, err := r.read(ctx, s.config.Namespace, bootstrapv1.FileSource{Secret: user.PasswordHashSecretRef}, "user "+user.Name)
		if err != nil {
			return err
		}
		s.passwordHashes[user.Name] = string(hash)
	}
	return nil
}

// read returns the content of the key in a Secret or ConfigMap that a field of the spec, described by
// by, references.
func (r *contentReader) read(ctx context.Context, namespace string, from bootstrapv1.FileSource, by string) ([]byte, error) {
	ref, kind := from.Secret, "Secret"
	var object client.Object = &corev1.Secret{}
	if ref.Name == "" {
		ref, kind, object = from.ConfigMap, "ConfigMap", &corev1.ConfigMap{}
	}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, object)
	if apierrors.IsNotFound(err) {
		return nil, reconcile.Blocked(bootstrapv1.SourceNotFoundReason, "%s %s, which %s names, does not exist", kind, ref.Name, by)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind, ref.Name, err)
	}
	if secret, is := object.(*corev1.Secret); is && private(secret) {
		return nil, rejectPrivate(secret, by)
	}
	content, found := keyOf(object, ref.Key)
	if !found {
		return nil, reconcile.Blocked(bootstrapv1.SourceNotFoundReason, "%s %s has no key %s, which %s names", kind, ref.Name, ref.Key, by)
	}
	return content, nil
}

// credentialsFinalizer is the suffix of the finalizers on Secrets that hold the credentials of
// infrastructure clusters.
const credentialsFinalizer = ".infrastructure.cluster.x-k8s.io/credentials"

// private reports whether a user must not have a Secret written to a machine: certificates and
// kubeconfigs of clusters, bootstrap data, tokens, and credentials of hypervisors are private.
func private(secret *corev1.Secret) bool {
	types := []corev1.SecretType{
		clusterv1.ClusterSecretType, corev1.SecretTypeServiceAccountToken, corev1.SecretTypeBootstrapToken, controlplanev1.EtcdRestoreSecretType,
	}
	if slices.Contains(types, secret.Type) {
		return true
	}
	_, purpose, err := clustersecret.ParseSecretName(secret.Name)
	if err == nil && (purpose == clustersecret.Kubeconfig || secret.Labels[clusterv1.ClusterNameLabel] != "") {
		return true
	}
	return slices.ContainsFunc(secret.Finalizers, func(f string) bool { return strings.HasSuffix(f, credentialsFinalizer) })
}

func rejectPrivate(secret *corev1.Secret, by string) error {
	return reconcile.Blocked(bootstrapv1.SourceNotFoundReason,
		"Secret %s, which %s names, holds credentials of a cluster, a hypervisor or the management cluster, and no machine may get these; "+
			"copy the part that the machine needs into a Secret of type Opaque", secret.Name, by)
}

func keyOf(object client.Object, key string) (content []byte, found bool) {
	switch o := object.(type) {
	case *corev1.Secret:
		content, found = o.Data[key]
	case *corev1.ConfigMap:
		if text, isText := o.Data[key]; isText {
			return []byte(text), true
		}
		content, found = o.BinaryData[key]
	}
	return content, found
}
