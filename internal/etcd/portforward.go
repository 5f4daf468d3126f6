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

// Port is where kubeadm's etcd serves its clients, for a dialer.
var Port = strconv.Itoa(port)

// PortForward dials members through the API server that config reaches.
func PortForward(config *rest.Config) (Dial, error) {
	return ForwardTo(config, "etcd", Port)
}

// ForwardTo dials a static pod of each node through the API server that config
// reaches.
func ForwardTo(config *rest.Config, component, port string) (Dial, error) {
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("reading port of %s: %w", component, err)
	}
	// The dialer sets a timeout on the configuration it is given.
	dialer, err := proxy.NewDialer(proxy.Proxy{
		Kind: "pods", Namespace: metav1.NamespaceSystem, KubeConfig: rest.CopyConfig(config), Port: number,
	})
	if err != nil {
		return nil, fmt.Errorf("making port-forward dialer: %w", err)
	}
	return func(ctx context.Context, node string) (net.Conn, error) {
		// A static pod's name is its own and its node's.
		conn, err := dialer.DialContextWithAddr(ctx, component+"-"+node)
		if err != nil {
			return nil, fmt.Errorf("forwarding to %s on %s: %w", component, node, err)
		}
		return conn, nil
	}, nil
}
