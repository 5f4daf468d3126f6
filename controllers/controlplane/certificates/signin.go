package certificates

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// KeepUserKubeconfig keeps the kubeconfig for users who sign in with tokens. It
// contains no credentials. A failure is only reported: the cluster does not need it.
func (r *Keeper) KeepUserKubeconfig(ctx context.Context, s *scope.Scope) error {
	if err := r.userKubeconfig(ctx, s); err != nil {
		s.Failures = append(s.Failures, fmt.Errorf("keeping Secret %s: %w", userKubeconfigName(s.ClusterName), err))
	}
	return nil
}

// userKubeconfigName is the name of the Secret. It does not end in -kubeconfig: the
// Secret of a Cluster that is named like this one with a suffix would.
func userKubeconfigName(cluster string) string { return cluster + "-kubeconfig-oidc" }

func (r *Keeper) userKubeconfig(ctx context.Context, s *scope.Scope) error {
	current := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.ControlPlane.Namespace, Name: userKubeconfigName(s.ClusterName)}
	err := r.Client.Get(ctx, key, current)
	missing := apierrors.IsNotFound(err)
	issuers := s.ControlPlane.Spec.Platform.Authentication.Issuers
	switch {
	case err != nil && !missing:
		return fmt.Errorf("reading it: %w", err)
	case missing && len(issuers) == 0:
		return nil
	case !missing && !metav1.IsControlledBy(current, s.ControlPlane):
		if len(issuers) == 0 {
			return nil
		}
		return fmt.Errorf("it exists and does not belong to NovaControlPlane %s: delete or rename it", s.ControlPlane.Name)
	case len(issuers) == 0:
		return client.IgnoreNotFound(r.Client.Delete(ctx, current, client.Preconditions{UID: &current.UID}))
	}
	data, err := r.newUserKubeconfig(ctx, s, issuers)
	if err != nil {
		return err
	}
	if missing {
		current = nil
	} else if bytes.Equal(current.Data[secret.KubeconfigDataName], data) {
		return nil
	}
	return r.saveKubeconfig(ctx, s, current, key, data)
}

// newUserKubeconfig returns a kubeconfig with a context for each issuer. The plugin
// kubelogin of kubectl signs users in.
func (r *Keeper) newUserKubeconfig(ctx context.Context, s *scope.Scope, issuers []bootstrapv1.TokenIssuer) ([]byte, error) {
	server, ca, err := r.serverAndCA(ctx, s)
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[s.ClusterName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	for i := range issuers {
		issuer := &issuers[i]
		name := issuer.Name + "@" + s.ClusterName
		config.AuthInfos[issuer.Name] = &clientcmdapi.AuthInfo{Exec: signIn(issuer)}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: s.ClusterName, AuthInfo: issuer.Name}
		if i == 0 {
			config.CurrentContext = name
		}
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing kubeconfig: %w", err)
	}
	return data, nil
}

// signIn returns the command with which kubectl gets a token.
func signIn(issuer *bootstrapv1.TokenIssuer) *clientcmdapi.ExecConfig {
	args := []string{"oidc-login", "get-token", "--oidc-issuer-url=" + issuer.GetURL(), "--oidc-client-id=" + issuer.Audiences[0]}
	for _, scope := range issuer.Scopes {
		args = append(args, "--oidc-extra-scope="+scope)
	}
	if issuer.CertificateAuthority != "" {
		args = append(args, "--certificate-authority-data="+base64.StdEncoding.EncodeToString([]byte(issuer.CertificateAuthority)))
	}
	return &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "kubectl", Args: args,
		InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		InstallHint:     "Install kubelogin, the plugin oidc-login of kubectl: https://github.com/int128/kubelogin",
	}
}
