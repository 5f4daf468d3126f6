package bootstrap

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/approver"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
)

const (
	// tokenTTL is the validity of a bootstrap token. It can be short, because it is extended in the
	// workload cluster until its machine has joined.
	tokenTTL = time.Hour
	// tokenAnnotation on the bootstrap data is the ID of its token.
	tokenAnnotation = "nova.bootstrap.cluster.x-k8s.io/token-id"
)

// keylessCA returns the certificates of a CA whose key is not available here: another control plane
// provider may publish the certificate alone, or only the kubeconfig. It returns nil if there is
// neither.
func (r *issuer) keylessCA(ctx context.Context, s *scope) ([]byte, error) {
	if s.controlPlane != nil || r.workloadClusters == nil {
		return nil, nil
	}
	published := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.cluster.Namespace, Name: secret.Name(s.cluster.Name, secret.ClusterCA)}
	err := r.client.Get(ctx, key, published)
	switch {
	case err == nil && len(published.Data[secret.TLSKeyDataName]) == 0:
		return certificates(published.Data[secret.TLSCrtDataName]), nil
	case err == nil || !apierrors.IsNotFound(err):
		return nil, nil
	}
	key.Name = secret.Name(s.cluster.Name, secret.Kubeconfig)
	if err := r.client.Get(ctx, key, published); err != nil {
		return nil, nil //nolint:nilerr // without a kubeconfig no CA is known, which is not an error
	}
	config, err := workload.RESTConfig(published.Data[secret.KubeconfigDataName])
	if err != nil {
		return nil, reconcile.Blocked(bootstrapv1.WaitingForAPIServerReason, "Secret %s cannot be used: %s", key.Name, err).After(time.Minute)
	}
	return certificates(config.CAData), nil
}

// certificates returns pem if it contains certificates, or else nil.
func certificates(pem []byte) []byte {
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return nil
	}
	return pem
}

// issueToken issues the machine's own bootstrap token, or extends its existing token: the data stays
// as it is then, also on a machine that has booted.
func (r *issuer) issueToken(ctx context.Context, s *scope, ca []byte) error {
	workloadClient, err := r.workloadClusters.GetUncachedClient(ctx, s.clusterKey())
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return reconcile.Wait(bootstrapv1.WaitingForAPIServerReason,
			"Waiting for a response of the API server: the private key of the cluster CA is not available, so the machine joins with a bootstrap token").After(approver.ConnectRetry)
	}
	if err != nil {
		return fmt.Errorf("reaching API server: %w", err)
	}
	token, err := r.extendToken(ctx, s, workloadClient)
	if err == nil && token == nil {
		token, err = newToken(s)
		if err == nil {
			err = workloadClient.Create(ctx, token)
		}
	}
	if err != nil {
		return fmt.Errorf("creating bootstrap token: %w", err)
	}
	s.token, s.lifetime = string(token.Data["token-id"]), tokenTTL
	s.join = &bootstrap.JoinCredentials{CA: ca, Token: s.token + "." + string(token.Data["token-secret"])}
	return nil
}

// extendToken extends the machine's token, if it still exists.
func (r *issuer) extendToken(ctx context.Context, s *scope, workloadClient client.Client) (*corev1.Secret, error) {
	id := storedToken(s.secret)
	if id == "" {
		return nil, nil //nolint:nilnil // the data has no token
	}
	token := &corev1.Secret{}
	err := workloadClient.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: joining.TokenNamePrefix + id}, token)
	if apierrors.IsNotFound(err) || err == nil && token.Annotations[joining.TokenMachineAnnotation] != string(s.joiner()) {
		return nil, nil //nolint:nilnil // the token expired, or belongs to another machine
	}
	if err != nil {
		return nil, err
	}
	token.Data["expiration"] = expiration()
	return token, workloadClient.Update(ctx, token)
}

func expiration() []byte { return []byte(time.Now().Add(tokenTTL).UTC().Format(time.RFC3339)) }

func newToken(s *scope) (*corev1.Secret, error) {
	random, err := bootstraputil.GenerateBootstrapToken()
	if err != nil {
		return nil, fmt.Errorf("reading random numbers: %w", err)
	}
	id, key, _ := strings.Cut(random, ".")
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: joining.TokenNamePrefix + id,
			Annotations: map[string]string{joining.TokenMachineAnnotation: string(s.joiner())},
		},
		Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id": []byte(id), "token-secret": []byte(key), "expiration": expiration(),
			"usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups":              []byte(joining.Group),
			"description":                    []byte("Bootstrap token of machine " + s.machine.Name),
		},
	}, nil
}

// storedToken returns the ID of the token in the data, or an empty string if there is none.
func storedToken(data *corev1.Secret) string {
	if data == nil {
		return ""
	}
	return data.Annotations[tokenAnnotation]
}

// revokeToken deletes the token of a machine that has joined from the workload cluster.
func (r *issuer) revokeToken(ctx context.Context, s *scope) (ctrl.Result, error) {
	id := storedToken(s.secret)
	if id == "" || r.workloadClusters == nil {
		return ctrl.Result{}, nil
	}
	workloadClient, err := r.workloadClusters.GetUncachedClient(ctx, s.clusterKey())
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{RequeueAfter: reconcile.PollInterval}, nil // the token also expires by itself
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reaching API server: %w", err)
	}
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: joining.TokenNamePrefix + id}}
	if err := workloadClient.Delete(ctx, token); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("deleting bootstrap token: %w", err)
	}
	done := s.secret.DeepCopy()
	delete(done.Annotations, tokenAnnotation)
	if err := r.client.Update(ctx, done); err != nil {
		return ctrl.Result{}, fmt.Errorf("recording that the bootstrap token was deleted: %w", err)
	}
	s.secret = done
	return ctrl.Result{}, nil
}
