package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// enclose builds missing programs, which needs the network, and runs the command again inside its
// own namespaces. CAPV listens on all addresses at a fixed port, so its network must have no other
// programs. Every process in there ends with the namespaces in any case.
func enclose(ctx context.Context, o options, args []string) (err error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return errors.New("needs root on Linux for namespaces of its own: run it with sudo")
	}
	if err := os.MkdirAll(bed.Cache(), 0o755); err != nil {
		return fmt.Errorf("making directory: %w", err)
	}
	dir, err := os.MkdirTemp(bed.Cache(), "compare-")
	if err != nil {
		return fmt.Errorf("making directory: %w", err)
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir)
			return
		}
		err = fmt.Errorf("%w (logs stay in %s)", err, dir)
	}()
	if err := os.Mkdir(scratch(dir), 0o700); err != nil {
		return fmt.Errorf("making directory: %w", err)
	}
	if err := build(ctx, o, dir); err != nil {
		return err
	}
	// The signal that the child gets when its parent dies is sent when the
	// thread dies that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append(args, "--inside", "--dir="+dir)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+scratch(dir))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("comparing: %w", err)
	}
	return nil
}

// build builds all programs and fetches the sources that manifests are in.
func build(ctx context.Context, o options, dir string) error {
	if _, err := tools.Paths(ctx, os.Stderr, append([]string{"etcd", "kube-apiserver", "kubectl"}, pinned(o.Providers)...)...); err != nil {
		return err
	}
	for _, name := range o.Providers {
		p, err := providerOf(name)
		if err != nil {
			return err
		}
		if err := p.prepare(ctx, filepath.Join(dir, "bin")); err != nil {
			return err
		}
	}
	return nil
}

// scratch is where etcd and vCenter keep their files.
func scratch(dir string) string { return filepath.Join(dir, "scratch") }

// settle prepares the namespaces for programs. Written files stay in memory, so that no disk is
// measured.
func prepareNamespaces(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", scratch(dir), "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mounting a place for files: %w", err)
	}
	// The processes that are seen are those of this namespace.
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := connect(); err != nil {
		return fmt.Errorf("making a network: %w", err)
	}
	return nil
}

// connect makes the network: loopback, and a way out that leads nowhere, by
// which an API server finds the address it is to advertise.
func connect() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "out"
	out := netlink.NewVeth(attributes)
	out.PeerName = "nowhere"
	if err := netlink.LinkAdd(out); err != nil {
		return err
	}
	nowhere, err := netlink.LinkByName(out.PeerName)
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr("192.0.2.1/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(out, address); err != nil {
		return err
	}
	for _, link := range []netlink.Link{loopback, nowhere, out} {
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	everywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: out.Attrs().Index, Dst: everywhere})
}
