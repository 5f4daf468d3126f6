package bed

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

// API is the API server of a workload cluster without hosts: a real one, with
// etcd, at the endpoint of the cluster and with certificates of its CA.
type API struct{ *Empty }

// StartAPI starts the API server of a workload cluster as soon as the control
// plane provider has made its CA. Nothing else of the cluster runs.
func (b *Bed) StartAPI(ctx context.Context, c Cluster) (*API, error) {
	e := &Empty{Address: c.Endpoint, layout: layout(b.layout.path("management", c.Namespace+"-"+c.Name))}
	e.Bed = &Bed{Name: b.Name, Dir: b.Dir, hypervisors: b.hypervisors, layout: b.layout, log: b.log}
	var ca *authority
	err := await(ctx, 2*time.Minute, "waiting for the CA", func(ctx context.Context) (err error) {
		ca, err = b.authority(ctx, c, secret.ClusterCA)
		return err
	})
	if err == nil {
		err = e.serve(ctx, ca, "etcd", "kube-apiserver")
	}
	if err != nil {
		return nil, fmt.Errorf("starting API server of %s: %w", c.Name, errors.Join(err, e.Stop()))
	}
	return &API{Empty: e}, nil
}

// authority reads a certificate authority of a workload cluster.
func (b *Bed) authority(ctx context.Context, c Cluster, purpose secret.Purpose) (*authority, error) {
	s := &corev1.Secret{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: secret.Name(c.Name, purpose)}, s); err != nil {
		return nil, err
	}
	certs, err := cert.ParseCertsPEM(s.Data[secret.TLSCrtDataName])
	if err != nil {
		return nil, fmt.Errorf("reading certificate of the CA: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(s.Data[secret.TLSKeyDataName])
	if err != nil {
		return nil, fmt.Errorf("reading key of the CA: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("reading key of the CA: %T signs nothing", key)
	}
	return &authority{cert: certs[0], key: signer}, nil
}

// As returns a client of the cluster for a user with a certificate of its CA.
func (a *API) As(user string, groups ...string) (client.WithWatch, error) {
	p, err := a.ca.client(user, groups...)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(a.Config)
	config.CertFile, config.KeyFile = "", ""
	config.CertData, config.KeyData = p.cert, p.key
	return client.NewWithWatch(config, client.Options{Scheme: env.Scheme()})
}

// Serving returns a serving certificate of the CA of a workload cluster, as its
// administrator can make it.
func (b *Bed) Serving(ctx context.Context, c Cluster, addresses ...net.IP) (tls.Certificate, error) {
	ca, err := b.authority(ctx, c, secret.ClusterCA)
	if err != nil {
		return tls.Certificate{}, err
	}
	p, err := ca.server(c.Name, nil, addresses...)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(p.cert, p.key)
}
