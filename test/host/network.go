package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The network of a bed. Every bed has the same: it lies in a network namespace
// of its own.
const (
	// Gateway is the bed's own address on the bridge.
	Gateway = "10.77.0.1"
	// Subnet is the network of the hosts.
	Subnet = "10.77.0.0/24"
	// Bridge joins the hosts.
	Bridge = "br0"

	prefixLength = "/24"
	dhcpRange    = "10.77.0.100,10.77.0.250,255.255.255.0,12h"
	netnsDir     = "/run/netns"
	// services is the control group of the bed's processes that are no host;
	// no disk has such a name.
	services = ".services"
)

// Network is the wire between the hosts of one bed: a network namespace with
// a bridge, DHCP, and names for the hosts that have leases.
type Network struct {
	bed, dir string
	log      io.Writer
}

// NewNetwork returns the network of a bed, which may be up already. Leases and
// logs go to dir.
func NewNetwork(bed, dir string, log io.Writer) *Network {
	return &Network{bed: bed, dir: dir, log: log}
}

// Netns is the name of the network namespace, as ip netns knows it.
func (n *Network) Netns() string {
	return bedName(n.bed)
}

// Up creates the network. It can be called again, and keeps existing parts.
func (n *Network) Up(ctx context.Context) error {
	if err := requireRoot(); err != nil {
		return err
	}
	if err := checkName("bed", n.bed); err != nil {
		return err
	}
	if err := needPrograms(ctx, n.log, machinePrograms); err != nil {
		return err
	}
	dir, err := filepath.Abs(n.dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("making the network: %w", err)
	}
	n.dir = dir
	if err := raiseInotify(ctx, n.bed, n.log); err != nil {
		return fmt.Errorf("raising the limit of inotify: %w", err)
	}
	if err := makeNetns(n.Netns()); err != nil {
		return fmt.Errorf("making network namespace %s: %w", n.Netns(), err)
	}
	if err := inNetns(n.Netns(), makeBridge); err != nil {
		return fmt.Errorf("making the bridge: %w", err)
	}
	if err := n.serveDHCP(ctx); err != nil {
		return fmt.Errorf("starting DHCP: %w", err)
	}
	return nil
}

// Down removes the network and stops the processes of Command. Hosts must be
// off.
func (n *Network) Down(ctx context.Context) error {
	if err := requireRoot(); err != nil {
		return err
	}
	bed, err := bedGroup(n.bed)
	if err != nil {
		return err
	}
	errs := []error{bed.child(services).destroy(ctx)}
	if bed.empty() {
		errs = append(errs, bed.remove())
	}
	return errors.Join(append(errs, removeNetns(n.Netns()), restoreInotify(ctx, n.bed, n.log))...)
}

// Command returns a command that runs in the network and in the control group
// of the bed, so that Down and Cleanup find it and its child processes.
func (n *Network) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	bed, err := bedGroup(n.bed)
	if err != nil {
		return nil, err
	}
	group := bed.child(services)
	// One tree is enough to find a process again.
	group.trees = group.trees[:1]
	if err := group.make(); err != nil {
		return nil, err
	}
	enter := `echo 0 >"$0/cgroup.procs"; exec "$@"`
	line := append([]string{"-euc", enter, group.dirs()[0], "nsenter", "--net=" + filepath.Join(netnsDir, n.Netns()), "--", name}, args...)
	return exec.CommandContext(ctx, "/bin/sh", line...), nil
}

// serveDHCP starts the DHCP and name server unless it runs.
func (n *Network) serveDHCP(ctx context.Context) error {
	pidFile := filepath.Join(n.dir, "dnsmasq.pid")
	if n.serves(pidFile) {
		return nil
	}
	cmd, err := n.Command(ctx, "dnsmasq",
		"--conf-file=", "--user=root", "--group=root", "--pid-file="+pidFile,
		"--bind-interfaces", "--interface="+Bridge, "--except-interface=lo",
		"--dhcp-range="+dhcpRange, "--dhcp-leasefile="+filepath.Join(n.dir, "dnsmasq.leases"),
		"--dhcp-option=option:router,"+Gateway, "--dhcp-option=option:dns-server,"+Gateway,
		// An address is offered at once, and an unknown client is answered.
		"--no-ping", "--dhcp-authoritative",
		// A name that no host has does not exist, so that no client waits for a
		// response.
		"--no-resolv", "--no-hosts", "--address=/#/",
		"--log-dhcp", "--log-facility="+filepath.Join(n.dir, "dnsmasq.log"))
	if err != nil {
		return err
	}
	// It returns when it is ready, and continues in the background.
	return runQuietly(cmd)
}

// serves reports whether the process in pidFile belongs to this bed.
func (n *Network) serves(pidFile string) bool {
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		return false
	}
	line, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "cmdline"))
	return err == nil && bytes.Contains(line, []byte(pidFile))
}

// makeNetns makes a named network namespace unless it is there.
func makeNetns(name string) error {
	path := filepath.Join(netnsDir, name)
	if ns, err := netns.GetFromPath(path); err == nil {
		var fs unix.Statfs_t
		err := unix.Fstatfs(int(ns), &fs)
		_ = ns.Close()
		if err == nil && fs.Type == unix.NSFS_MAGIC {
			return nil
		}
	}
	// An empty file remains from a crash during this operation.
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return onThread(func() error {
		ns, err := netns.NewNamed(name)
		if err != nil {
			return err
		}
		return ns.Close()
	})
}

// removeNetns removes a named network namespace.
func removeNetns(name string) error {
	path := filepath.Join(netnsDir, name)
	if !exists(path) {
		return nil
	}
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("removing network namespace %s: %w", name, err)
	}
	return os.Remove(path)
}

// inNetns calls f in a named network namespace.
func inNetns(name string, f func() error) error {
	ns, err := netns.GetFromPath(filepath.Join(netnsDir, name))
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", name, err)
	}
	defer func() { _ = ns.Close() }()
	return onThread(func() error {
		if err := netns.Set(ns); err != nil {
			return err
		}
		return f()
	})
}

// onThread calls f on a thread of its own, which ends with the call: f may
// change the namespaces that it runs in.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot be thrown away: it would stay where f
			// went, and hold a host's network after the host. While it is
			// held here, f gets another.
			done <- onThread(f)
			runtime.UnlockOSThread()
			return
		}
		// Never unlocked, so the thread is thrown away.
		done <- f()
	}()
	return <-done
}

// makeBridge sets up the current network namespace as that of a bed.
func makeBridge() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for path, value := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":              "1",
		"/proc/sys/net/ipv6/conf/default/accept_ra":  "0",
		"/proc/sys/net/ipv6/conf/default/accept_dad": "0",
		// Hosts filter for themselves.
		"/proc/sys/net/bridge/bridge-nf-call-iptables":  "0",
		"/proc/sys/net/bridge/bridge-nf-call-ip6tables": "0",
	} {
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Bridge}}
	if err := netlink.LinkAdd(bridge); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	link, err := netlink.LinkByName(Bridge)
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(Gateway + prefixLength)
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(link, address); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}
