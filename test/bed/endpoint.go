package bed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

// EndpointCheck returns a check that requests the readiness of a workload
// cluster's API server, at its endpoint and over a new connection.
func (b *Bed) EndpointCheck(ctx context.Context, c Cluster) (func(context.Context) error, error) {
	config, err := b.TenantConfig(ctx, c.Key())
	if err != nil {
		return nil, err
	}
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig of workload cluster %s: %w", c.Name, err)
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		once := &http.Client{Transport: &http.Transport{DialContext: b.Dial, TLSClientConfig: settings, DisableKeepAlives: true}}
		response, err := once.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s responds with %s", request.URL, response.Status)
		}
		return nil
	}, nil
}

// EndpointHolder is the node that has a tenant's address now.
func (b *Bed) EndpointHolder(ctx context.Context, c Cluster) (string, error) {
	tenant, err := b.TenantClient(ctx, c.Key())
	if err != nil {
		return "", err
	}
	lease := &coordinationv1.Lease{}
	if err := tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "plndr-cp-lock"}, lease); err != nil {
		return "", fmt.Errorf("finding holder of the endpoint of %s: %w", c.Name, err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", fmt.Errorf("no machine holds the endpoint of %s", c.Name)
	}
	return *lease.Spec.HolderIdentity, nil
}

// Etcd queries the etcd members of a workload cluster directly, without API
// servers and providers, also while the management cluster does not respond.
type Etcd struct {
	bed     *Bed
	cluster Cluster
	tls     *tls.Config

	mu        sync.Mutex
	addresses map[string]string
}

// Etcd returns how to ask a tenant's etcd. Its authority is there already.
func (b *Bed) Etcd(ctx context.Context, c Cluster) (*Etcd, error) {
	issue := pki.NewManaged(b.Client).EtcdClient
	if c.StarVault != "" {
		issue = b.vaultEtcdClient
	}
	pair, ca, err := issue(ctx, c.Key(), pki.ClientRequest{CommonName: "nova-control-plane", TTL: 12 * time.Hour})
	if err != nil {
		return nil, fmt.Errorf("making client of etcd of %s: %w", c.Name, err)
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("making client of etcd of %s: %w", c.Name, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &Etcd{bed: b, cluster: c, tls: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{certificate},
	}}, nil
}

// Health queries all members that have a machine.
func (e *Etcd) Health(ctx context.Context) (*etcd.Health, error) {
	dial, nodes := e.reach(ctx)
	return etcd.Observe(ctx, dial, e.tls, nodes)
}

// Remove removes the member of a machine through another one.
func (e *Etcd) Remove(ctx context.Context, machine string) error {
	health, err := e.Health(ctx)
	if err != nil {
		return fmt.Errorf("listing members of etcd of %s: %w", e.cluster.Name, err)
	}
	at := slices.IndexFunc(health.Members, func(m etcd.Member) bool { return m.Name == machine })
	if at < 0 {
		return fmt.Errorf("etcd of %s has no member %s", e.cluster.Name, machine)
	}
	dial, nodes := e.reach(ctx)
	others := slices.DeleteFunc(nodes, func(node string) bool { return node == machine })
	return etcd.RemoveMember(ctx, dial, e.tls, others, health.Members[at].ID)
}

// reach returns the nodes of members and how to connect to each.
func (e *Etcd) reach(ctx context.Context) (etcd.Dial, []string) {
	addresses := e.nodes(ctx)
	return func(ctx context.Context, node string) (net.Conn, error) {
		if addresses[node] == "" {
			return nil, errors.New("the machine has no address")
		}
		return e.bed.Dial(ctx, "tcp", net.JoinHostPort(addresses[node], "2379"))
	}, slices.Collect(maps.Keys(addresses))
}

// nodes are the addresses of the control plane's machines, whose nodes have
// their names. If the management cluster does not respond within a second they are
// those from before, if there are any.
func (e *Etcd) nodes(ctx context.Context) map[string]string {
	e.mu.Lock()
	known := e.addresses != nil
	e.mu.Unlock()
	if known {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	machines := &clusterv1.MachineList{}
	err := e.bed.Client.List(ctx, machines, client.InNamespace(e.cluster.Namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel})
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.addresses = map[string]string{}
		for i := range machines.Items {
			e.addresses[machines.Items[i].Name] = InternalIP(&machines.Items[i])
		}
	}
	return e.addresses
}
