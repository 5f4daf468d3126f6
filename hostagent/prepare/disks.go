package prepare

import (
	"context"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	fstab    = "/etc/fstab"
	swapFile = "/var/lib/nova.swap"
	// deviceTimeout is how long a device may take to appear.
	deviceTimeout = time.Minute
	// etcdDir is kubeadm's default data directory of etcd.
	etcdDir = "/var/lib/etcd"
)

// disks partitions, formats and mounts disks, and makes a swap file.
func disks(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	for _, table := range c.Partitions {
		if err := partition(ctx, m, table); err != nil {
			return err
		}
	}
	for _, disk := range c.Disks {
		if err := useDisk(ctx, m, disk); err != nil {
			return err
		}
	}
	for _, from := range c.Mounts {
		line := fmt.Sprintf("%s %s %s %s 0 0\n", from.Source, from.Path, from.Filesystem, from.Options)
		if err := mount(ctx, m, from.Path, 1, from.Path, line); err != nil {
			return err
		}
	}
	if c.EtcdDir != "" {
		if err := m.Mkdir(c.EtcdDir, 0o700); err != nil {
			return err
		}
	}
	if c.SwapMiB > 0 && !strings.Contains("\n"+m.Read(fstab), "\n"+swapFile+" ") {
		return addSwap(ctx, m, c.SwapMiB)
	}
	return nil
}

// waitForDevice waits until a device exists. If it does not appear, the next
// command fails with the reason.
func waitForDevice(ctx context.Context, m *machine.Machine, device string) error {
	for until := m.Now().Add(deviceTimeout); !m.Exists(device) && m.Now().Before(until); {
		if err := m.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// empty reports whether a device has neither a file system nor a partition
// table.
func empty(ctx context.Context, m *machine.Machine, device string) bool {
	_, err := m.Output(ctx, "blkid", "-p", m.At(device))
	// blkid ends with 2 if it finds nothing, and with 8 if it finds several.
	return err != nil && machine.Status(err) == 2
}

// partition creates a partition table on an empty disk.
func partition(ctx context.Context, m *machine.Machine, table nodeconfig.PartitionTable) error {
	if err := waitForDevice(ctx, m, table.Device); err != nil {
		return err
	}
	if empty(ctx, m, table.Device) {
		script := &strings.Builder{}
		for _, size := range table.SizesMiB {
			if size == 0 {
				script.WriteString(",\n")
				continue
			}
			fmt.Fprintf(script, ",%dMiB\n", size)
		}
		command := machine.Command{Args: []string{"sfdisk", "--quiet", "--label", "gpt", m.At(table.Device)}, Input: script.String()}
		if err := m.RunCommand(ctx, command); err != nil {
			return err
		}
		if err := m.Run(ctx, "udevadm", "settle"); err != nil {
			m.Logf("Device files of %s may be late: %v", table.Device, err)
		}
	}
	dump, err := m.Output(ctx, "sfdisk", "--dump", m.At(table.Device))
	if got := strings.Count(dump, " start= "); err != nil || got != len(table.SizesMiB) {
		return fmt.Errorf("%s does not have a partition table with %d partitions", table.Device, len(table.SizesMiB))
	}
	return nil
}

// useDisk mounts a disk. It makes a file system on an empty one only.
func useDisk(ctx context.Context, m *machine.Machine, disk nodeconfig.Mount) error {
	if err := waitForDevice(ctx, m, disk.Source); err != nil {
		return err
	}
	if empty(ctx, m, disk.Source) {
		if err := m.Run(ctx, "mkfs."+disk.Filesystem, m.At(disk.Source)); err != nil {
			return err
		}
	}
	if kind, err := tag(ctx, m, "TYPE", disk.Source); err != nil || kind != disk.Filesystem {
		return fmt.Errorf("%s contains data that is not %s", disk.Source, disk.Filesystem)
	}
	uuid, err := tag(ctx, m, "UUID", disk.Source)
	if err != nil {
		return err
	}
	source := "UUID=" + uuid
	line := fmt.Sprintf("%s %s %s %s 0 2\n", source, disk.Path, disk.Filesystem, disk.Options)
	if err := mount(ctx, m, disk.Path, 0, source, line); err != nil {
		return err
	}
	// kubeadm requires an empty etcd folder, and etcd requires to own it. A
	// folder with other content is not removed.
	_ = os.Remove(m.At(disk.Path + "/lost+found"))
	if path.Clean(disk.Path) == etcdDir {
		return m.Mkdir(disk.Path, 0o700)
	}
	return nil
}

func tag(ctx context.Context, m *machine.Machine, name, device string) (string, error) {
	return m.Output(ctx, "blkid", "-p", "-o", "value", "-s", name, m.At(device))
}

// mount mounts a file system now and at each boot. The line is added to fstab
// unless one has this value in this column.
func mount(ctx context.Context, m *machine.Machine, at string, column int, value, line string) error {
	if err := os.MkdirAll(m.At(at), 0o755); err != nil { //nolint:gosec // the usual mode of a mount point
		return fmt.Errorf("creating mount point: %w", err)
	}
	known := false
	for existing := range strings.Lines(m.Read(fstab)) {
		fields := strings.Fields(existing)
		known = known || len(fields) > column && fields[column] == value
	}
	if !known {
		if err := m.Append(fstab, line); err != nil {
			return err
		}
	}
	if m.Run(ctx, "mountpoint", "-q", at) == nil {
		return nil
	}
	return m.Run(ctx, "mount", at)
}

// addSwap creates a swap file. Its last step is the entry for the next boots,
// and a file without it is recreated.
func addSwap(ctx context.Context, m *machine.Machine, sizeMiB int) error {
	if err := m.Write(swapFile, "", 0o600); err != nil {
		return err
	}
	// A file with holes cannot be swapped to.
	for _, command := range [][]string{
		{"dd", "if=/dev/zero", "of=" + m.At(swapFile), "bs=1M", "count=" + strconv.Itoa(sizeMiB), "status=none"},
		{"mkswap", m.At(swapFile)},
		{"swapon", m.At(swapFile)},
	} {
		if err := m.Run(ctx, command...); err != nil {
			return err
		}
	}
	return m.Append(fstab, fmt.Sprintf("%s none swap sw 0 0\n", swapFile))
}
