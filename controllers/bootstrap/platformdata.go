package bootstrap

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// readPlatformData reads the Secrets and ConfigMaps in the cluster's namespace that the platform
// settings reference.
func (r *contentReader) readPlatformData(ctx context.Context, s *scope) error {
	p := platform(s.config, s.controlPlane)
	for _, authority := range []struct {
		by   string
		from bootstrapv1.FileSource
		into *[]byte
	}{
		{"platform.proxy.trustedCAFrom", p.Proxy.TrustedCAFrom, &s.platformData.ProxyCA},
		{"platform.mirrorTrustedCAFrom", p.MirrorTrustedCAFrom, &s.platformData.MirrorCA},
		{"platform.configurationManager.trustedCAFrom", p.ConfigurationManager.TrustedCAFrom, &s.platformData.ConfigurationManagerCA},
	} {
		if isZero(authority.from) {
			continue
		}
		content, err := r.read(ctx, s.config.Namespace, authority.from, authority.by)
		if err != nil {
			return err
		}
		*authority.into = content
	}
	for _, credentials := range []struct {
		by     string
		ref    bootstrapv1.SecretReference
		tokens bool
		into   *bootstrap.ServerCredentials
	}{
		{"platform.proxy.credentialsSecretRef", p.Proxy.CredentialsSecretRef, false, &s.platformData.ProxyCredentials},
		{"platform.mirrorCredentialsSecretRef", p.MirrorCredentialsSecretRef, true, &s.platformData.MirrorCredentials},
	} {
		if credentials.ref.Name == "" {
			continue
		}
		var err error
		if *credentials.into, err = r.readLogin(ctx, client.ObjectKey{Namespace: s.config.Namespace, Name: credentials.ref.Name}, credentials.by, credentials.tokens); err != nil {
			return err
		}
	}
	return nil
}

// readLogin reads a Secret with username and password or, if tokens is set, a token.
func (r *contentReader) readLogin(ctx context.Context, key client.ObjectKey, by string, tokens bool) (bootstrap.ServerCredentials, error) {
	secret := &corev1.Secret{}
	err := r.client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return bootstrap.ServerCredentials{}, reconcile.Blocked(bootstrapv1.SourceNotFoundReason, "Secret %s, which %s names, does not exist", key.Name, by)
	}
	if err != nil {
		return bootstrap.ServerCredentials{}, fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	if private(secret) {
		return bootstrap.ServerCredentials{}, rejectPrivate(secret, by)
	}
	credentials := bootstrap.ServerCredentials{
		Username: string(secret.Data[bootstrapv1.LoginUsernameKey]),
		Password: string(secret.Data[bootstrapv1.LoginPasswordKey]),
	}
	if tokens {
		credentials.Token = string(secret.Data[bootstrapv1.LoginTokenKey])
	}
	if credentials.Token != "" || credentials.Username != "" && credentials.Password != "" {
		return credentials, nil
	}
	keys := "username and password"
	if tokens {
		keys = "token, or username and password"
	}
	return bootstrap.ServerCredentials{}, reconcile.Blocked(bootstrapv1.SourceNotFoundReason, "Secret %s, which %s names, lacks %s", key.Name, by, keys)
}

// platformSecrets returns the Secrets that the platform settings reference.
func platformSecrets(p *bootstrapv1.PlatformSpec) []string {
	return notEmpty(p.Proxy.CredentialsSecretRef.Name, p.MirrorCredentialsSecretRef.Name, p.Proxy.TrustedCAFrom.Secret.Name, p.MirrorTrustedCAFrom.Secret.Name,
		p.ConfigurationManager.TrustedCAFrom.Secret.Name)
}

// platformConfigMaps returns the ConfigMaps that the platform settings reference.
func platformConfigMaps(p *bootstrapv1.PlatformSpec) []string {
	return notEmpty(p.Proxy.TrustedCAFrom.ConfigMap.Name, p.MirrorTrustedCAFrom.ConfigMap.Name, p.ConfigurationManager.TrustedCAFrom.ConfigMap.Name)
}

func notEmpty(names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
