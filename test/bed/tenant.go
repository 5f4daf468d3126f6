package bed

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

// probe fails unless an API server is ready.
func probe(ctx context.Context, config *rest.Config) error {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	return d.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// TenantKubeconfig returns the kubeconfig of a tenant cluster as its control
// plane provider published it.
func (b *Bed) TenantKubeconfig(ctx context.Context, cluster client.ObjectKey) ([]byte, error) {
	s := &corev1.Secret{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.Kubeconfig)}
	if err := b.Client.Get(ctx, key, s); err != nil {
		return nil, fmt.Errorf("reading kubeconfig of workload cluster %s: %w", cluster.Name, err)
	}
	return s.Data[secret.KubeconfigDataName], nil
}

// WriteTenantKubeconfig writes the kubeconfig of a tenant cluster into a file
// of the bed and returns its path.
func (b *Bed) WriteTenantKubeconfig(ctx context.Context, cluster client.ObjectKey) (string, error) {
	data, err := b.TenantKubeconfig(ctx, cluster)
	if err != nil {
		return "", err
	}
	path := b.layout.kubeconfig("tenant-" + cluster.Namespace + "-" + cluster.Name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", fmt.Errorf("writing kubeconfig of workload cluster %s: %w", cluster.Name, err)
	}
	return path, nil
}

// TenantConfig returns how to reach a tenant's API server from here.
func (b *Bed) TenantConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	data, err := b.TenantKubeconfig(ctx, cluster)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig of workload cluster %s: %w", cluster.Name, err)
	}
	b.direct(config)
	return config, nil
}

// TenantClient returns a client of a tenant's API server.
func (b *Bed) TenantClient(ctx context.Context, cluster client.ObjectKey) (client.WithWatch, error) {
	config, err := b.TenantConfig(ctx, cluster)
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("creating client of workload cluster %s: %w", cluster.Name, err)
	}
	return c, nil
}
