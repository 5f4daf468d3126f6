package etcdbackup

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

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
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

const userAgent = "nova-etcd-backup"

// WorkloadClusters connects to workload clusters and their etcd. Its zero value is not
// usable; use NewWorkloadClusters.
type WorkloadClusters struct {
	secrets   client.Reader
	authority pki.Authority
	// user is the manager's own user in workload clusters. Without it the
	// credentials of the kubeconfig are used.
	user *workload.User
	// forward connects to members through the API server, and dial connects to
	// an address; tests without hosts replace them.
	forward func(ctx context.Context, cluster client.ObjectKey) (etcd.Dial, error)
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	// history returns an ID that distinguishes the data of one etcd from
	// another.
	history func(ctx context.Context, cluster client.ObjectKey) (string, error)
}

// NewWorkloadClusters returns WorkloadClusters that read kubeconfigs through secrets and connect
// as user.
func NewWorkloadClusters(secrets client.Reader, authority pki.Authority, user *workload.User) *WorkloadClusters {
	t := &WorkloadClusters{secrets: secrets, authority: authority, user: user, dial: (&net.Dialer{Timeout: timelimits.ConnectTimeout, Control: endpoints.Control}).DialContext}
	t.forward, t.history = t.portForward, t.uid
	return t
}

// Forwarded connects to the members of a workload cluster's etcd through its
// API server.
func (t *WorkloadClusters) Forwarded(ctx context.Context, cluster client.ObjectKey) (etcd.Dial, *tls.Config, error) {
	dial, err := t.forward(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	credentials, err := pki.EtcdTLS(ctx, t.authority, cluster, userAgent)
	return dial, credentials, err
}

func (t *WorkloadClusters) portForward(ctx context.Context, cluster client.ObjectKey) (etcd.Dial, error) {
	config, err := t.config(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return etcd.PortForward(config)
}

// Direct connects to the member of etcd on a machine at the machine's address,
// without the API server.
func (t *WorkloadClusters) Direct(ctx context.Context, cluster client.ObjectKey, machine *clusterv1.Machine) (etcd.Dial, *tls.Config, error) {
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
			conn, err := t.dial(ctx, "tcp", net.JoinHostPort(address, etcd.Port))
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
	credentials, err := pki.EtcdTLS(ctx, t.authority, cluster, userAgent)
	return dial, credentials, err
}

// Client returns a client of a workload cluster's API server.
func (t *WorkloadClusters) Client(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
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

// uid returns the UID of the namespace kube-system in the workload cluster. The
// first API server on an empty etcd creates the namespace and it cannot be
// deleted, so its UID is in every snapshot of that etcd and in no other. The
// UIDs of the management cluster change with a move, and etcd's cluster ID
// changes with a restore; an address that is used again gives the same ID to
// another etcd.
func (t *WorkloadClusters) uid(ctx context.Context, cluster client.ObjectKey) (string, error) {
	workloadClient, err := t.Client(ctx, cluster)
	if err != nil {
		return "", err
	}
	namespace := &corev1.Namespace{}
	if err := workloadClient.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}

// config returns the connection to a workload cluster's API server.
func (t *WorkloadClusters) config(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	data, err := kubeconfig.FromSecret(ctx, t.secrets, cluster)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	config, _, err := t.user.RESTConfig(ctx, cluster, data)
	if err != nil {
		return nil, fmt.Errorf("using kubeconfig: %w", err)
	}
	config.UserAgent, config.Timeout = userAgent, timelimits.ConnectTimeout
	return config, nil
}
