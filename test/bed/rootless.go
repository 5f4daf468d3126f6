package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

const (
	// rootlessPorts is added to the ports of a rootless bed: a user may not listen
	// at low ports, and others may be in use on the machine.
	rootlessPorts = 20000
	// rootlessGateway is the address of hypervisors in a rootless bed.
	rootlessGateway = "127.77.0.1"
	// rootlessGiB is the disk space that a cold start of a rootless bed needs.
	rootlessGiB = 6
)

// RootlessEndpoint and RootlessPort are where the API server of a workload
// cluster in a rootless bed is reached.
const (
	RootlessEndpoint = "127.77.0.10"
	RootlessPort     = managementPort + rootlessPorts
)

// RootlessFlags let managers connect to the loopback addresses of a rootless
// bed, which they refuse by default.
func RootlessFlags() []string { return []string{"allow-endpoints=127.77.0.0/16"} }

// supported returns the reason why a bed with these options cannot run on this
// computer.
func (o Options) supported() error {
	switch {
	case !o.Rootless:
		return Supported()
	case !o.Bodiless || o.Flux || o.Unmanaged:
		return errors.New("a rootless test environment must be bodiless and managed, and have no Flux")
	case runtime.GOOS != "linux":
		return fmt.Errorf("a rootless test environment needs Linux, where all of 127.0.0.0/8 is local; this is %s", runtime.GOOS)
	}
	if _, err := exec.LookPath("go"); err != nil {
		return errors.New("the test environment needs the command go in PATH")
	}
	return enoughDisk(Cache(), rootlessGiB)
}

// port returns the port that stands for a port in this bed.
func (b *Bed) port(port int) int {
	if b.rootless {
		return port + rootlessPorts
	}
	return port
}

// address returns where hypervisors listen at a port.
func (b *Bed) address(port int) string {
	if b.rootless {
		return net.JoinHostPort(rootlessGateway, strconv.Itoa(b.port(port)))
	}
	return net.JoinHostPort(host.Gateway, strconv.Itoa(port))
}

// connectNetwork makes the network of the bed. In a rootless bed it fails if
// another program listens at the management cluster's port.
func (b *Bed) connectNetwork(ctx context.Context) error {
	if !b.rootless {
		return b.network().Up(ctx)
	}
	for _, address := range []string{loopback(b.port(managementPort)), b.address(vcenterPort)} {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("the address %s is in use, maybe by the test environment of another user: %w", address, err)
		}
		if err := listener.Close(); err != nil {
			return fmt.Errorf("releasing the address %s: %w", address, err)
		}
	}
	return nil
}

// command returns a command in the network of the bed.
func (b *Bed) command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	if b.rootless {
		return exec.CommandContext(ctx, program, args...), nil
	}
	return b.network().Command(ctx, program, args...)
}

// managerProcess runs a manager as its pod would. A rootless bed has no mount
// namespaces for the files of a pod, so the manager gets a kubeconfig with the
// same token.
func (b *Bed) managerProcess(m manager, program string, extra ...string) supervisor.Process {
	if !b.rootless {
		return m.process(b.layout, program, extra...)
	}
	return supervisor.Process{
		Name:  m.name,
		Args:  append(append([]string{program}, m.args...), extra...),
		Env:   append([]string{"KUBECONFIG=" + m.kubeconfig(b.layout), "POD_NAMESPACE=" + m.namespace, "POD_IP=127.0.0.1"}, m.env...),
		After: []string{filepath.Join(m.account(b.layout), "token")},
	}
}

// admit gives a manager a token of its service account.
func (b *Bed) admit(ctx context.Context, m manager, ca []byte) error {
	if b.rootless {
		token := filepath.Join(m.account(b.layout), "token")
		config := kubeconfig(b.managementServer(), ca, &clientcmdapi.AuthInfo{TokenFile: token})
		if err := writeKubeconfig(m.kubeconfig(b.layout), config); err != nil {
			return err
		}
	}
	return m.admit(ctx, b.layout, b.Client, ca)
}

// kubeconfig is the file by which a manager without a pod reaches the
// management cluster.
func (m manager) kubeconfig(l layout) string { return l.path("pods", m.name, "kubeconfig") }

// endRootless ends all programs of a rootless bed, also those of its workload
// clusters.
func (b *Bed) endRootless() error {
	errs := []error{supervisor.End(b.layout.pids())}
	clusters, err := filepath.Glob(b.layout.path("management", "*"))
	errs = append(errs, err)
	for _, dir := range clusters {
		errs = append(errs, supervisor.End(layout(dir).pids()))
	}
	return errors.Join(errs...)
}
