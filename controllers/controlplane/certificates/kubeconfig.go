package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

const (
	// renewAt is the part of its lifetime, in percent, that is left when the
	// certificate of the kubeconfig is renewed.
	renewAt        = 60
	kubeconfigUser = "kubernetes-admin"
)

// KeepKubeconfig keeps the kubeconfig. If that fails in a running cluster, the
// failure is reported and the current kubeconfig stays in use.
func (r *Keeper) KeepKubeconfig(ctx context.Context, s *scope.Scope) error {
	err := r.kubeconfig(ctx, s)
	r.warnVault(s, err)
	if err != nil && s.Initialized {
		s.Failures = append(s.Failures, err)
		return nil
	}
	return err
}

// kubeconfig maintains the Secret that Cluster API and this provider use to
// connect to the workload cluster. A Secret that a user created is not changed.
func (r *Keeper) kubeconfig(ctx context.Context, s *scope.Scope) error {
	server, ca, err := r.serverAndCA(ctx, s)
	if err != nil {
		return err
	}
	current := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.ControlPlane.Namespace, Name: secret.Name(s.ClusterName, secret.Kubeconfig)}
	if err := r.Client.Get(ctx, key, current); apierrors.IsNotFound(err) {
		current = nil
	} else if err != nil {
		return fmt.Errorf("reading kubeconfig: %w", err)
	} else if err := pki.Adopt(ctx, r.Client, current, s.ClusterName, s.Owner()); err != nil {
		return err
	}
	SetExpiry(s, ofClusterCA, pemExpires(ca))
	SetExpiry(s, ofKubeconfig, kubeconfigExpires(current))
	if current != nil && !metav1.IsControlledBy(current, s.ControlPlane) {
		if _, err := workload.RESTConfig(current.Data[secret.KubeconfigDataName]); err != nil {
			return fmt.Errorf("using Secret %s: %w", key.Name, err)
		}
		return nil
	}
	reason, renewIn := kubeconfigDue(current, server, ca, r.CurrentTime())
	if reason == "" {
		s.RequeueAfter(renewIn)
		return nil
	}
	pair, err := r.Authority.Client(ctx, s.Key(), pki.ClientRequest{
		CommonName: kubeconfigUser, Organizations: []string{AdminsGroup}, TTL: timelimits.KubeconfigTTL,
	})
	if err != nil {
		return fmt.Errorf("issuing kubeconfig's certificate: %w", err)
	}
	data, err := clientcmd.Write(*newKubeconfig(s.ClusterName, server, ca, pair))
	if err != nil {
		return fmt.Errorf("writing kubeconfig: %w", err)
	}
	if err := r.saveKubeconfig(ctx, s, current, key, data); err != nil {
		return fmt.Errorf("saving kubeconfig: %w", err)
	}
	kubeconfigsIssued.Inc()
	r.Event(s, corev1.EventTypeNormal, "KubeconfigIssued", "Kubeconfig", fmt.Sprintf("Secret %s: %s", key.Name, reason))
	s.RequeueAfter(timelimits.KubeconfigTTL * (100 - renewAt) / 100)
	return nil
}

// serverAndCA returns the URL of the API server in kubeconfigs, and its CA.
func (r *Keeper) serverAndCA(ctx context.Context, s *scope.Scope) (server string, ca []byte, err error) {
	if ca, err = r.Authority.ClusterCA(ctx, s.Key()); err != nil {
		return "", nil, fmt.Errorf("reading cluster CA: %w", err)
	}
	if server, err = workload.Server("https://" + s.Cluster.Spec.ControlPlaneEndpoint.String()); err != nil {
		return "", nil, fmt.Errorf("using the control plane endpoint: %w", err)
	}
	return server, ca, nil
}

// saveKubeconfig writes the kubeconfig into current, or into a new Secret.
func (r *Keeper) saveKubeconfig(ctx context.Context, s *scope.Scope, current *corev1.Secret, key client.ObjectKey, data []byte) error {
	if current == nil {
		// Not applied: a Secret that a user creates at the same moment must
		// win.
		return r.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       key.Namespace,
				Name:            key.Name,
				Labels:          map[string]string{clusterv1.ClusterNameLabel: s.ClusterName},
				OwnerReferences: []metav1.OwnerReference{s.Owner()},
			},
			Type: clusterv1.ClusterSecretType,
			Data: map[string][]byte{secret.KubeconfigDataName: data},
		})
	}
	renewed := current.DeepCopy()
	if renewed.Labels == nil {
		renewed.Labels = map[string]string{}
	}
	renewed.Labels[clusterv1.ClusterNameLabel] = s.ClusterName
	renewed.Data = map[string][]byte{secret.KubeconfigDataName: data}
	return r.Client.Update(ctx, renewed)
}

func newKubeconfig(cluster, server string, ca []byte, pair pki.KeyPair) *clientcmdapi.Config {
	name := kubeconfigUser + "@" + cluster
	return &clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{kubeconfigUser: {ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: cluster, AuthInfo: kubeconfigUser}},
		CurrentContext: name,
	}
}

// kubeconfigDue returns why a kubeconfig has to be written, or else how long
// the current one may stay.
func kubeconfigDue(current *corev1.Secret, server string, ca []byte, now time.Time) (reason string, renewIn time.Duration) {
	if current == nil {
		return "The kubeconfig was created", 0
	}
	config, err := workload.RESTConfig(current.Data[secret.KubeconfigDataName])
	if err != nil {
		// A user has edited it, but this provider manages it.
		return "The kubeconfig was replaced because " + err.Error(), 0
	}
	if config.Host != server {
		return "The kubeconfig was replaced because the endpoint changed", 0
	}
	if !bytes.Equal(config.CAData, ca) {
		return "The kubeconfig was replaced because the cluster's CA changed", 0
	}
	block, _ := pem.Decode(config.CertData)
	if block == nil {
		return "The kubeconfig was replaced because it had no certificate", 0
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "The kubeconfig was replaced because its certificate could not be read", 0
	}
	if authority, err := certs.DecodeCertPEM(ca); err == nil && !certificate.NotAfter.Before(authority.NotAfter) {
		// No certificate outlives its CA's: a new one would not last longer.
		return "", 0
	}
	renewIn = certificate.NotAfter.Add(-timelimits.KubeconfigTTL * renewAt / 100).Sub(now)
	if renewIn <= 0 {
		return "The kubeconfig was renewed before its certificate expires", 0
	}
	return "", renewIn
}
