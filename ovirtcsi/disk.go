package ovirtcsi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// virtioSerial is the length of the serial numbers of virtio disks
// (VIRTIO_BLK_ID_BYTES of the Linux kernel), and of SCSI disks of QEMU before
// version 2.2: the beginning of the disk's ID.
const virtioSerial = 20

// errNoDisk reports that no disk has the serial number of a volume.
var errNoDisk = errors.New("no disk of this machine has the ID of the volume as its serial number")

// disk is a block device of the node.
type disk struct {
	// device is the path of the device, such as /dev/sdb.
	device string
	// folder describes it, such as /sys/block/sdb.
	folder string
}

// findDisk returns the disk of a volume: the block device in a folder of the form
// of /sys/block whose serial number is the ID of the volume. The error is errNoDisk
// if there is none, which is normal for a moment after the disk was attached.
func findDisk(blocks, devices, volume string) (disk, error) {
	entries, err := os.ReadDir(blocks)
	if err != nil {
		return disk{}, fmt.Errorf("listing block devices: %w", err)
	}
	var found []disk
	for _, entry := range entries {
		d := disk{device: filepath.Join(devices, entry.Name()), folder: filepath.Join(blocks, entry.Name())}
		serial, err := d.serial()
		if err != nil {
			return disk{}, fmt.Errorf("reading the serial number of %s: %w", d.device, err)
		}
		if serial == volume || len(serial) == virtioSerial && strings.HasPrefix(volume, serial) {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 0:
		return disk{}, errNoDisk
	case 1:
		return found[0], nil
	default:
		return disk{}, fmt.Errorf("%s and %s have the serial number of the volume", found[0].device, found[1].device)
	}
}

// serial returns the serial number of a disk, and "" for a device that has none,
// such as a loop device.
func (d disk) serial() (string, error) {
	// Of virtio disks.
	data, err := os.ReadFile(filepath.Join(d.folder, "serial"))
	if err == nil || !gone(err) {
		return strings.TrimSpace(string(data)), err
	}
	// Of SCSI disks: the page "Unit Serial Number" of the vital product data, a header
	// of four bytes and the number (SPC-4, 7.8.15).
	data, err = os.ReadFile(filepath.Join(d.folder, "device", "vpd_pg80"))
	if err != nil {
		if gone(err) {
			err = nil
		}
		return "", err
	}
	if len(data) < 4 {
		return "", nil
	}
	return string(bytes.Trim(data[4:], " \x00")), nil
}

// rescan makes the kernel read the size of a SCSI disk again. For virtio disks the
// hypervisor announces a new size.
func (d disk) rescan() error {
	file, err := os.OpenFile(filepath.Join(d.folder, "device", "rescan"), os.O_WRONLY, 0)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString("1")
	return errors.Join(err, file.Close())
}

// size returns the size of a block device in bytes.
func size(device string) (int64, error) {
	file, err := os.Open(device)
	if err != nil {
		return 0, err
	}
	end, err := file.Seek(0, io.SeekEnd)
	return end, errors.Join(err, file.Close())
}

// gone reports whether a file does not exist, or that its device was detached meanwhile.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO)
}
