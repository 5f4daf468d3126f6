package bed

import (
	"context"
	"net"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// Exec runs a command in the host of a VM and returns its standard output
// without surrounding white space.
func (b *Bed) Exec(ctx context.Context, vm string, args ...string) (string, error) {
	out, err := host.Exec(ctx, b.Name, b.Hosts(), vm, args...)
	return strings.TrimSpace(string(out)), err
}

// Listen listens at an address inside the bed. Hosts reach servers of a test
// at host.Gateway.
func (b *Bed) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var listener net.Listener
	err := b.Inside(func() (err error) {
		var config net.ListenConfig
		listener, err = config.Listen(ctx, network, address)
		return err
	})
	return listener, err
}
