package balancer

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// Unit is the service that follows the API servers.
	Unit = "nova-api-balancer.service"

	dir        = nodeconfig.BalancerDir
	config     = dir + "/haproxy.cfg"
	kubeconfig = "/etc/kubernetes/kubelet.conf"
	manifest   = "/etc/kubernetes/manifests/nova-api-balancer.yaml"

	// startTimeout is how long the load balancer may take to work: the image may
	// have to be pulled.
	startTimeout = 15 * time.Minute
	// pause is the time between two watches.
	pause = 5 * time.Second
)

// server is the line of the kubelet's kubeconfig.
var server = regexp.MustCompile(`(?m)^( *)server: .*$`)

// Start starts the load balancer, waits until it works, and only then configures
// the kubelet to use it. It can be repeated.
func Start(ctx context.Context, m *machine.Machine, port int) error {
	if !m.Exists(config) {
		if err := write(m, nil); err != nil {
			return err
		}
	}
	pod, err := m.Load(path.Join(dir, "pod.yaml"))
	if err != nil {
		return err
	}
	if err := m.Write(manifest, pod, 0o600); err != nil {
		return err
	}
	if err := wait(ctx, m, port); err != nil {
		return err
	}
	local := fmt.Sprintf("${1}server: https://127.0.0.1:%d\n${1}tls-server-name: kubernetes", port)
	text, err := m.Load(kubeconfig)
	if err != nil {
		return err
	}
	if !strings.Contains(text, fmt.Sprintf("server: https://127.0.0.1:%d\n", port)) {
		if err := m.Write(kubeconfig, server.ReplaceAllString(text, local), 0o600); err != nil {
			return err
		}
		if err := m.Run(ctx, "systemctl", "restart", "kubelet"); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if err := m.Write("/etc/systemd/system/"+Unit, strings.NewReplacer("__NOVA_HOST_AGENT__", self, "__NOVA_PORT__", strconv.Itoa(port)).Replace(unitText), 0o644); err != nil {
		return err
	}
	return m.Run(ctx, "systemctl", "enable", "--now", Unit)
}

// unitText is the service that follows the API servers.
//
//go:embed nova-api-balancer.service
var unitText string

// wait waits until an API server responds through the load balancer.
func wait(ctx context.Context, m *machine.Machine, port int) error {
	for until := m.Now().Add(startTimeout); ; {
		client, err := local(m, port)
		if err == nil {
			err = client.Ready(ctx)
		}
		if err == nil {
			return nil
		}
		if !m.Now().Before(until) {
			return fmt.Errorf("no API server responds through the load balancer on 127.0.0.1:%d: %w", port, err)
		}
		if err := m.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// Follow updates the list of API servers until the context ends.
func Follow(ctx context.Context, m *machine.Machine, port int) error {
	for ctx.Err() == nil {
		if err := followOnce(ctx, m, port); err != nil {
			m.Logf("API servers are unknown: %v", err)
		}
		if m.Sleep(ctx, pause) != nil {
			return nil //nolint:nilerr // the service is stopped
		}
	}
	return nil
}

// followOnce updates the list until a watch ends.
func followOnce(ctx context.Context, m *machine.Machine, port int) error {
	client, err := local(m, port)
	if err != nil {
		return err
	}
	return client.WatchAPIServers(ctx, func(servers []string) error { return write(m, servers) })
}

// local returns a client that uses the load balancer, with the kubelet's
// certificate, which the kubelet renews: so it is read each time.
func local(m *machine.Machine, port int) (*cluster.Client, error) {
	client, err := cluster.Load(m.At(kubeconfig))
	if err != nil {
		return nil, err
	}
	return client.Local(port)
}

// write writes the load balancer's configuration for these API servers, unless
// it lists them already. The pod detects the change.
func write(m *machine.Machine, servers []string) error {
	base, err := m.Load(path.Join(dir, "haproxy.base"))
	if err != nil {
		return err
	}
	text := strings.Builder{}
	text.WriteString(base)
	for i, address := range servers {
		fmt.Fprintf(&text, "  server api-%d %s\n", i+1, address)
	}
	if m.Exists(config) && m.Read(config) == text.String() {
		return nil
	}
	m.Logf("API servers: %s", strings.Join(servers, " "))
	// Readable for the user of the pod.
	return m.Write(config, text.String(), 0o644)
}
