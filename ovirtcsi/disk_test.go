package ovirtcsi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files are those of Linux 6.12 on QEMU 8.2: a virtio disk, SCSI disks, and
// devices without a serial number.
func TestFindDisk(t *testing.T) {
	const (
		volume = "0b1c2d3e-4f50-4617-8293-a4b5c6d7e8f9"
		other  = "0b1c2d3e-4f50-4617-9293-a4b5c6d7e8f9"
	)
	page := func(serial string) string { return "\x00\x80\x00" + string(rune(len(serial))) + serial }
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
		err   string
	}{
		"a SCSI disk":                         {map[string]string{"sda/device/vpd_pg80": page(other), "sdb/device/vpd_pg80": page(volume), "loop0/size": "0"}, "/dev/sdb", ""},
		"a virtio disk":                       {map[string]string{"vda/serial": "", "vdb/serial": volume[:20]}, "/dev/vdb", ""},
		"a padded serial number":              {map[string]string{"sda/device/vpd_pg80": page(volume + "  \x00")}, "/dev/sda", ""},
		"only another disk":                   {map[string]string{"sda/device/vpd_pg80": page(other), "vda/serial": other[:20]}, "", errNoDisk.Error()},
		"a shorter beginning":                 {map[string]string{"vda/serial": volume[:19]}, "", errNoDisk.Error()},
		"a page without a number":             {map[string]string{"sr0/device/vpd_pg80": "\x00\x80"}, "", errNoDisk.Error()},
		"no device":                           {nil, "", errNoDisk.Error()},
		"two disks with the number":           {map[string]string{"sda/device/vpd_pg80": page(volume), "vda/serial": volume[:20]}, "", "/dev/sda and /dev/vda have the serial number of the volume"},
		"a disk whose files cannot be read":   {map[string]string{"vda/serial/is-a-folder": ""}, "", "reading the serial number of /dev/vda: "},
		"no serial number for an empty value": {map[string]string{"vda/serial": "\n", "sda/device/vpd_pg80": page("")}, "", errNoDisk.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			blocks := t.TempDir()
			for path, content := range tc.files {
				path = filepath.Join(blocks, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := findDisk(blocks, "/dev", volume)
			if got.device != tc.want {
				t.Errorf("findDisk() = %q, want %q", got.device, tc.want)
			}
			if (err == nil) != (tc.err == "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("findDisk() failed with %v, want %q", err, tc.err)
			}
		})
	}
	if _, err := findDisk(filepath.Join(t.TempDir(), "missing"), "/dev", volume); err == nil {
		t.Error("findDisk() without a folder of devices succeeded")
	}
}
