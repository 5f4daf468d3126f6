package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// etcdClientTTL is the lifetime of the client certificate for etcd. An open
// connection outlives it.
const etcdClientTTL = 10 * time.Minute

// EtcdTLS returns the TLS configuration of a client of a workload cluster's
// etcd. External etcd has one client certificate, which has its own name.
func EtcdTLS(ctx context.Context, authority Authority, cluster client.ObjectKey, name string) (*tls.Config, error) {
	pair, ca, err := authority.EtcdClient(ctx, cluster, ClientRequest{CommonName: name, TTL: etcdClientTTL})
	if err != nil {
		return nil, fmt.Errorf("getting the client certificate for etcd: %w", err)
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("loading etcd certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("etcd's CA has no certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, RootCAs: pool}, nil
}
