package etcd

import (
	"context"
	"fmt"
	"net"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/proxy"
)

// Port is the client port of kubeadm's etcd, for a dialer.
var Port = strconv.Itoa(port)

// PortForward returns a dialer to members through the API server of config.
func PortForward(config *rest.Config) (Dial, error) {
	return ForwardTo(config, "etcd", Port)
}

// ForwardTo returns a dialer to a static pod of each node through the API
// server of config.
func ForwardTo(config *rest.Config, component, port string) (Dial, error) {
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("reading port of %s: %w", component, err)
	}
	// The dialer sets a timeout in the configuration that it gets.
	dialer, err := proxy.NewDialer(proxy.Proxy{
		Kind: "pods", Namespace: metav1.NamespaceSystem, KubeConfig: rest.CopyConfig(config), Port: number,
	})
	if err != nil {
		return nil, fmt.Errorf("making port-forward dialer: %w", err)
	}
	return func(ctx context.Context, node string) (net.Conn, error) {
		// The name of a static pod contains its own name and the node's.
		conn, err := dialer.DialContextWithAddr(ctx, component+"-"+node)
		if err != nil {
			return nil, fmt.Errorf("forwarding to %s on %s: %w", component, node, err)
		}
		return conn, nil
	}, nil
}
