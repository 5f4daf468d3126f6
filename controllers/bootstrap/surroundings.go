package bootstrap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
)

// readSurroundings reads what the platform's settings name in Secrets and
// ConfigMaps of the cluster's namespace.
func (r *Reconciler) readSurroundings(ctx context.Context, s *scope) error {
	p := platform(s.config, s.controlPlane)
	for _, authority := range []struct {
		by   string
		from bootstrapv1.FileSource
		into *[]byte
	}{
		{"platform.proxy.trustedCA", p.Proxy.TrustedCA, &s.surroundings.ProxyCA},
		{"platform.universe.trustedCA", p.Universe.TrustedCA, &s.surroundings.UniverseCA},
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
	for _, login := range []struct {
		by     string
		ref    bootstrapv1.SecretReference
		tokens bool
		into   *bootstrap.Login
	}{
		{"platform.proxy.credentials", p.Proxy.Credentials, false, &s.surroundings.ProxyLogin},
		{"platform.universe.credentials", p.Universe.Credentials, true, &s.surroundings.UniverseLogin},
	} {
		if login.ref.Name == "" {
			continue
		}
		var err error
		if *login.into, err = r.readLogin(ctx, client.ObjectKey{Namespace: s.config.Namespace, Name: login.ref.Name}, login.by, login.tokens); err != nil {
			return err
		}
	}
	return nil
}

// readLogin reads a Secret with username and password or, where tokens are
// taken, a token.
func (r *Reconciler) readLogin(ctx context.Context, key client.ObjectKey, by string, tokens bool) (bootstrap.Login, error) {
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return bootstrap.Login{}, &obstacle{
			reason:  bootstrapv1.SourceNotFoundReason,
			message: fmt.Sprintf("Secret %s, which %s names, does not exist", key.Name, by),
		}
	}
	if err != nil {
		return bootstrap.Login{}, fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	if private(secret) {
		return bootstrap.Login{}, refusePrivate(secret, by)
	}
	login := bootstrap.Login{
		Username: string(secret.Data[bootstrapv1.LoginUsernameKey]),
		Password: string(secret.Data[bootstrapv1.LoginPasswordKey]),
	}
	if tokens {
		login.Token = string(secret.Data[bootstrapv1.LoginTokenKey])
	}
	if login.Token != "" || login.Username != "" && login.Password != "" {
		return login, nil
	}
	keys := "username and password"
	if tokens {
		keys = "token, or username and password"
	}
	return bootstrap.Login{}, &obstacle{
		reason:  bootstrapv1.SourceNotFoundReason,
		message: fmt.Sprintf("Secret %s, which %s names, lacks %s", key.Name, by, keys),
	}
}

// platformSecrets are the Secrets that a platform's settings name.
func platformSecrets(p *bootstrapv1.PlatformSpec) []string {
	return notEmpty(p.Proxy.Credentials.Name, p.Universe.Credentials.Name, p.Proxy.TrustedCA.Secret.Name, p.Universe.TrustedCA.Secret.Name)
}

// platformConfigMaps are the ConfigMaps that a platform's settings name.
func platformConfigMaps(p *bootstrapv1.PlatformSpec) []string {
	return notEmpty(p.Proxy.TrustedCA.ConfigMap.Name, p.Universe.TrustedCA.ConfigMap.Name)
}

func notEmpty(names ...string) []string {
	var found []string
	for _, name := range names {
		if name != "" {
			found = append(found, name)
		}
	}
	return found
}
