package etcdbackup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
)

const (
	userAgent = "nova-etcd-backup"
	// etcdTTL is how long the certificate for etcd is good for. A connection
	// that stands outlives it.
	etcdTTL  = 10 * time.Minute
	etcdPort = 2379
	// adminsGroup is what kubeadm's own certificates for etcd's clients bear.
	adminsGroup = "kubeadm:cluster-admins"
	// dialTimeout bounds a connection to a machine that may be gone.
	dialTimeout = 10 * time.Second
)

// Tenants reaches what a tenant holds. Its zero value is of no use; use
// NewTenants.
type Tenants struct {
	secrets   client.Reader
	authority pki.Authority
	// user is the manager's own in tenants. Without it the kubeconfig's is used.
	user *workload.User
	// forward reaches members through the API server and dial an address; tests
	// without hosts replace them.
	forward func(ctx context.Context, cluster client.ObjectKey) (etcd.Dial, error)
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	// history tells what a tenant's etcd holds from what another one held.
	history func(ctx context.Context, cluster client.ObjectKey) (string, error)
}

// NewTenants returns Tenants that read kubeconfigs through secrets and connect
// as user.
func NewTenants(secrets client.Reader, authority pki.Authority, user *workload.User) *Tenants {
	t := &Tenants{secrets: secrets, authority: authority, user: user, dial: (&net.Dialer{Timeout: dialTimeout, Control: endpoints.Control}).DialContext}
	t.forward, t.history = t.portForward, t.uid
	return t
}

// Forwarded reaches the members of a tenant's etcd through its API server.
func (t *Tenants) Forwarded(ctx context.Context, cluster client.ObjectKey) (etcd.Dial, *tls.Config, error) {
	dial, err := t.forward(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	credentials, err := t.credentials(ctx, cluster)
	return dial, credentials, err
}

func (t *Tenants) portForward(ctx context.Context, cluster client.ObjectKey) (etcd.Dial, error) {
	config, err := t.config(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return etcd.PortForward(config)
}

// Direct reaches the member of a tenant's etcd on a machine at the machine's
// address, with nothing of the tenant between.
func (t *Tenants) Direct(ctx context.Context, cluster client.ObjectKey, machine *clusterv1.Machine) (etcd.Dial, *tls.Config, error) {
	var addresses []string
	for _, kind := range []clusterv1.MachineAddressType{clusterv1.MachineInternalIP, clusterv1.MachineExternalIP} {
		for _, a := range machine.Status.Addresses {
			if a.Type == kind {
				addresses = append(addresses, a.Address)
			}
		}
	}
	if len(addresses) == 0 {
		return nil, nil, fmt.Errorf("machine %s has no address", machine.Name)
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var errs []error
		for _, address := range addresses {
			conn, err := t.dial(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(etcdPort)))
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
	credentials, err := t.credentials(ctx, cluster)
	return dial, credentials, err
}

// Client returns a client of a tenant's API server.
func (t *Tenants) Client(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	config, err := t.config(ctx, cluster)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("reaching API server: %w", err)
	}
	return c, nil
}

// uid is the UID of the tenant's namespace kube-system. The first API server on
// an empty etcd makes it and nobody can delete it, so it comes back with every
// snapshot of that etcd and with no other. The UIDs of the management cluster
// change with a move, and etcd's own ID with a restore; an address that is used
// again gives the same ID to another etcd.
func (t *Tenants) uid(ctx context.Context, cluster client.ObjectKey) (string, error) {
	tenant, err := t.Client(ctx, cluster)
	if err != nil {
		return "", err
	}
	namespace := &corev1.Namespace{}
	if err := tenant.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}

// config is how a tenant's API server is reached.
func (t *Tenants) config(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	data, err := kubeconfig.FromSecret(ctx, t.secrets, cluster)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	config, _, err := t.user.RESTConfig(ctx, cluster, data)
	if err != nil {
		return nil, fmt.Errorf("using kubeconfig: %w", err)
	}
	config.UserAgent, config.Timeout = userAgent, dialTimeout
	return config, nil
}

// credentials are a certificate for a tenant's etcd and what verifies that.
func (t *Tenants) credentials(ctx context.Context, cluster client.ObjectKey) (*tls.Config, error) {
	pair, ca, err := t.authority.EtcdClient(ctx, cluster, pki.ClientRequest{
		CommonName: userAgent, Organizations: []string{adminsGroup}, TTL: etcdTTL,
	})
	if err != nil {
		return nil, fmt.Errorf("issuing etcd certificate: %w", err)
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("loading etcd certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("etcd's CA holds no certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, RootCAs: pool}, nil
}
