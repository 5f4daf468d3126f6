package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netns"
)

// InNamespace calls do on a thread in the named network namespace. Programs
// that do starts, and sockets that it creates, are in that namespace; other
// goroutines are not.
func InNamespace(name string, do func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("finding own network namespace: %w", err)
	}
	defer func() { _ = home.Close() }()
	target, err := netns.GetFromName(name)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("finding network namespace %s: %w", name, err)
	}
	defer func() { _ = target.Close() }()
	if err := netns.Set(target); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering network namespace %s: %w", name, err)
	}
	err = do()
	if back := netns.Set(home); back != nil {
		// The thread stays locked and so ends with its goroutine: it must
		// not serve others in the wrong namespace.
		return errors.Join(err, fmt.Errorf("leaving network namespace %s: %w", name, back))
	}
	runtime.UnlockOSThread()
	return err
}

// Dial connects to an address inside the bed. It refuses names: resolving
// them would leave the thread that is in the bed's namespace.
func (b *Bed) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dialing in test environment %s: %w", b.Name, err)
	}
	var conn net.Conn
	err := b.Inside(func() (err error) {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
