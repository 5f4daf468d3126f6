package pki

import (
	"context"
	"crypto/tls"
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// etcdClientFile is kubeadm's name for the API server's client certificate for
// etcd.
const etcdClientFile = "apiserver-etcd-client"

// loadExternal reads the certificates for external etcd: the CA certificate,
// stored in ca without a key, and a client certificate in its own Secret.
func (m *Managed) loadExternal(ctx context.Context, cluster, key client.ObjectKey, ca []byte) (*loaded, error) {
	authority, problem := parseAuthority(ca, m.now())
	if problem != "" {
		return nil, &InvalidCertificateError{Secret: key, Problem: problem}
	}
	clientKey := client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.APIServerEtcdClient)}
	s := &corev1.Secret{}
	if err := m.client.Get(ctx, clientKey, s); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &InvalidCertificateError{Secret: key, Problem: "key tls.key is missing or empty; " +
				"external etcd also requires Secret " + clientKey.Name, cause: ErrExternalClient}
		}
		return nil, fmt.Errorf("reading Secret %s: %w", clientKey.Name, err)
	}
	own := KeyPair{Certificate: s.Data[secret.TLSCrtDataName], Key: s.Data[secret.TLSKeyDataName]}
	if problem := checkClient(own, m.now()); problem != "" {
		return nil, &InvalidCertificateError{Secret: clientKey, Problem: problem, cause: ErrExternalClient}
	}
	return &loaded{pair: KeyPair{Certificate: ca}, certificate: authority, client: &own}, nil
}

// checkClient returns the problem of a client certificate. The servers may
// trust another CA than the one that signed their own certificates.
func checkClient(pair KeyPair, now time.Time) string {
	parsed, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	switch {
	case err != nil:
		return "tls.crt and tls.key are no certificate with its key in PEM"
	case now.After(parsed.Leaf.NotAfter):
		return "tls.crt has expired"
	}
	return ""
}

// files returns the files for a control plane machine.
func (l *loaded) files(mat material) []File {
	files := []File{{Path: path.Join(pkiDir, mat.certFile), Permissions: "0644", Content: l.pair.Certificate}}
	if len(l.pair.Key) > 0 {
		files = append(files, File{Path: path.Join(pkiDir, mat.keyFile), Permissions: "0600", Content: l.pair.Key})
	}
	if l.client == nil {
		return files
	}
	return append(files,
		File{Path: path.Join(pkiDir, etcdClientFile+".crt"), Permissions: "0644", Content: l.client.Certificate},
		File{Path: path.Join(pkiDir, etcdClientFile+".key"), Permissions: "0600", Content: l.client.Key},
	)
}
