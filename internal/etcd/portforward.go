package etcd

import (
	"context"
	"fmt"
	"net"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/proxy"
)

// PortForward dials members through the API server that config reaches.
func PortForward(config *rest.Config) (Dial, error) {
	// The dialer sets a timeout on the configuration it is given.
	dialer, err := proxy.NewDialer(proxy.Proxy{
		Kind: "pods", Namespace: metav1.NamespaceSystem, KubeConfig: rest.CopyConfig(config), Port: port,
	})
	if err != nil {
		return nil, fmt.Errorf("making port-forward dialer: %w", err)
	}
	return func(ctx context.Context, node string) (net.Conn, error) {
		// A static pod's name is its own and its node's.
		conn, err := dialer.DialContextWithAddr(ctx, "etcd-"+node)
		if err != nil {
			return nil, fmt.Errorf("forwarding to etcd on %s: %w", node, err)
		}
		return conn, nil
	}, nil
}
