package disk

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

const (
	mountInfo = "/proc/self/mountinfo"
	// sectorSize is the unit of sizes in sysfs, in bytes.
	sectorSize = 512
	// unusedTolerance is the space, in bytes, that may be left behind a partition: the
	// second partition table and the alignment.
	unusedTolerance = 4 << 20
	// sizeTimeout is how long the kernel may take to have the new size of a disk.
	sizeTimeout = 30 * time.Second
)

// volume is the partition, the disk or the logical volume with a file system, as a
// folder in sysfs.
type volume struct {
	m    *machine.Machine
	path string
}

// findVolume returns the volume of the file system that is mounted at a path; nil if
// it is on no device.
func findVolume(m *machine.Machine, mountPoint string) *volume {
	var found *volume
	for line := range strings.Lines(m.Read(mountInfo)) {
		before, after, _ := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(rest) < 2 || fields[4] != mountPoint {
			continue
		}
		found = nil // a later line covers the former ones
		// The number of a Btrfs is not that of its device.
		for _, path := range []string{"/sys/dev/block/" + fields[2], "/sys/class/block/" + filepath.Base(rest[1])} {
			if folder, err := filepath.EvalSymlinks(m.At(path)); err == nil {
				found = &volume{m: m, path: strings.TrimPrefix(folder, strings.TrimSuffix(m.At("/"), "/"))}
				break
			}
		}
	}
	return found
}

// number returns the number of a partition; empty for anything else.
func (v *volume) number() string { return strings.TrimSpace(v.m.Read(v.path + "/partition")) }

// disk returns the disk of a partition, and other volumes themselves.
func (v *volume) disk() *volume {
	if v.number() == "" {
		return v
	}
	return &volume{m: v.m, path: filepath.Dir(v.path)}
}

// parts returns the partitions and disks that the volume is made of.
func (v *volume) parts() []*volume {
	paths, err := filepath.Glob(v.m.At(v.path + "/slaves/*"))
	if err != nil || len(paths) == 0 {
		return []*volume{v}
	}
	var parts []*volume
	for _, path := range paths {
		if folder, err := filepath.EvalSymlinks(path); err == nil {
			part := &volume{m: v.m, path: strings.TrimPrefix(folder, strings.TrimSuffix(v.m.At("/"), "/"))}
			parts = append(parts, part.parts()...)
		}
	}
	return parts
}

// bytes returns a number of sysfs that counts sectors.
func (v *volume) bytes(file string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(v.m.Read(v.path+"/"+file)), 10, 64)
	return n * sectorSize
}

// unused returns the space behind a partition.
func (v *volume) unused() int64 {
	if v.number() == "" {
		return 0
	}
	return v.disk().bytes("size") - v.bytes("start") - v.bytes("size")
}

// device returns the path of the volume's device.
func (v *volume) device() string {
	return "/dev/" + strings.ReplaceAll(filepath.Base(v.path), "!", "/")
}

// Size returns the size of the disk with the file system that is mounted at a path, in
// GiB. It is 0 if the file system is on no disk.
func Size(m *machine.Machine, mountPoint string) int64 {
	v := findVolume(m, mountPoint)
	if v == nil {
		return 0
	}
	return v.parts()[0].disk().bytes("size") >> 30
}

// Grow lets the file system that is mounted at a path use its disk, which has a size in
// GiB. It does nothing for a file system on no disk.
func Grow(ctx context.Context, m *machine.Machine, mountPoint string, size int64) error {
	v := findVolume(m, mountPoint)
	if size == 0 || v == nil {
		return nil
	}
	part := v.parts()[0]
	if err := awaitSize(ctx, m, part.disk(), size<<30); err != nil {
		return err
	}
	if part != v {
		if part.unused() > unusedTolerance {
			return fmt.Errorf("%s is a logical volume, which the host agent does not extend: extend %s, or delete the Machine to replace it", v.device(), part.device())
		}
		return nil
	}
	if v.unused() > unusedTolerance {
		if !m.Has("growpart") {
			return fmt.Errorf("growpart is not installed, so partition %s cannot be extended", v.device())
		}
		if err := m.Run(ctx, "growpart", v.disk().device(), v.number()); err != nil {
			return fmt.Errorf("extending partition %s: %w", v.device(), err)
		}
	}
	if err := m.Run(ctx, "systemd-growfs", mountPoint); err != nil {
		return fmt.Errorf("extending file system: %w", err)
	}
	return nil
}

// awaitSize waits until the kernel has a size of a disk, in bytes.
func awaitSize(ctx context.Context, m *machine.Machine, disk *volume, wanted int64) error {
	for until := m.Now().Add(sizeTimeout); disk.bytes("size") < wanted; {
		if m.Now().After(until) {
			return fmt.Errorf("the kernel has %d GiB of %s instead of %d", disk.bytes("size")>>30, disk.device(), wanted>>30)
		}
		// Not all controllers report a new size by themselves.
		for _, file := range []string{"/device/rescan", "/device/rescan_controller"} {
			if m.Exists(disk.path + file) {
				if err := m.Set(disk.path+file, "1"); err != nil {
					return err //nolint:wrapcheck // it names the file
				}
			}
		}
		if err := m.Sleep(ctx, time.Second); err != nil {
			return err //nolint:wrapcheck // it says that it waited
		}
	}
	return nil
}
