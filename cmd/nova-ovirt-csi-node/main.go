// Command nova-ovirt-csi-node is the part of the oVirt CSI driver on nodes. It
// serves the kubelet at a Unix socket:
//
//	nova-ovirt-csi-node --root=/host --socket=/var/lib/kubelet/plugins/csi.ovirt.org/csi.sock
//
// Its image has no other programs: it uses mount, blkid, mkfs, fsck and the
// programs that grow file systems of the node, whose root file system is at --root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nova-platform/cluster-api-provider-nova/ovirtcsi"
)

// version is set by the linker.
var version = "devel"

func main() {
	root := flag.String("root", "/", "The folder with the root file system of the node, whose programs make, check and mount file systems. All other paths are below it.")
	socket := flag.String("socket", "/var/lib/kubelet/plugins/"+ovirtcsi.Name+"/csi.sock", "The path of the Unix socket for the kubelet.")
	flag.Parse()
	if err := run(*root, *socket); err != nil {
		fmt.Fprintf(os.Stderr, "nova-ovirt-csi-node: %v\n", err)
		os.Exit(1)
	}
}

func run(root, socket string) error {
	if err := syscall.Chroot(root); err != nil {
		return fmt.Errorf("entering the root file system of the node: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("entering the root file system of the node: %w", err)
	}
	// The image sets none.
	if os.Getenv("PATH") == "" {
		if err := os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return ovirtcsi.Serve(ctx, socket, version, ovirtcsi.Options{})
}
