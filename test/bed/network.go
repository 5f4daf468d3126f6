package bed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// makeNetwork makes the bed's network namespace with the bridge that hosts
// are plugged into.
func (b *Bed) makeNetwork(context.Context) error {
	if err := newNamespace(Namespace(b.Name)); err != nil {
		return fmt.Errorf("making network namespace: %w", err)
	}
	return inNamespace(Namespace(b.Name), func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("finding loopback: %w", err)
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("bringing loopback up: %w", err)
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return fmt.Errorf("making bridge: %w", err)
		}
		address, err := netlink.ParseAddr(Gateway + "/24")
		if err != nil {
			return fmt.Errorf("making bridge: %w", err)
		}
		if err := netlink.AddrAdd(bridge, address); err != nil {
			return fmt.Errorf("making bridge: %w", err)
		}
		if err := netlink.LinkSetUp(bridge); err != nil {
			return fmt.Errorf("bringing bridge up: %w", err)
		}
		return nil
	})
}

// newNamespace makes a named network namespace and stays out of it.
func newNamespace(name string) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { _ = home.Close() }()
	made, err := netns.NewNamed(name)
	if err == nil {
		err = made.Close()
	}
	if back := netns.Set(home); back != nil {
		return errors.Join(err, back)
	}
	runtime.UnlockOSThread()
	return err
}

// removeNetwork removes what makeNetwork made.
func (b *Bed) removeNetwork(context.Context) error {
	err := netns.DeleteNamed(Namespace(b.Name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing network namespace: %w", err)
	}
	return nil
}
