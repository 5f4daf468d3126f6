package qemu

import (
	"maps"
	"testing"
)

// The texts are as print_drive and print_net of qemu-server write them.
func TestPrint(t *testing.T) {
	for _, test := range []struct{ option, text, want string }{
		{"scsi0", "local-lvm:vm-100-disk-0,size=20G,iothread=on", "local-lvm:vm-100-disk-0,iothread=1,size=20G"},
		{"ide2", "media=cdrom,file=none", "none,media=cdrom"},
		{"scsi1", "volume=local:100/vm-100-disk-0.qcow2", "local:100/vm-100-disk-0.qcow2"},
	} {
		drive, err := ParseDrive(test.option, test.text)
		if err != nil || drive.String() != test.want {
			t.Errorf("%s: got %q, %v", test.text, drive, err)
		}
	}
	net, err := ParseNet("net0", "bridge=vmbr0,model=virtio,macaddr=BC:24:11:00:00:01,firewall=0")
	if err != nil || net.String() != "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=0" {
		t.Errorf("got %q, %v", net, err)
	}
}

func TestSizes(t *testing.T) {
	for text, bytes := range map[string]int64{"20G": 20 * GiB, "1.5G": 1536 * MiB, "512": 512, "528K": 528 * KiB, "2T": 2 * TiB} {
		if got, err := ParseSize(text); err != nil || got != bytes {
			t.Errorf("%s: got %d, %v", text, got, err)
		}
	}
	for bytes, text := range map[int64]string{20 * GiB: "20G", 1536 * MiB: "1536M", 2048 * GiB: "2T", 1025: "1025"} {
		if got := FormatSize(bytes); got != text {
			t.Errorf("%d: got %s", bytes, got)
		}
	}
}

func TestDrives(t *testing.T) {
	for text, want := range map[string]struct {
		size           int64
		isNew, cd, own bool
	}{
		"local-lvm:20":                      {size: 20 * GiB, isNew: true},
		"local-lvm:0.5":                     {size: GiB / 2, isNew: true},
		"local-lvm:vm-100-disk-0":           {},
		"local-lvm:cloudinit":               {cd: true, own: true},
		"local:100/vm-100-cloudinit.qcow2":  {cd: true, own: true},
		"local:iso/a.iso,media=cdrom":       {cd: true},
		"none,media=cdrom":                  {cd: true},
		"local:9000/base-9000-disk-0.qcow2": {},
	} {
		drive, err := ParseDrive("scsi0", text)
		_, size, isNew := drive.NewDisk()
		if err != nil || size != want.size || isNew != want.isNew || drive.CDROM() != want.cd || drive.CloudInit() != want.own {
			t.Errorf("%s: got %d, %t, %t, %t, %v", text, size, isNew, drive.CDROM(), drive.CloudInit(), err)
		}
	}
}

func TestConfig(t *testing.T) {
	c := NewConfig(map[string]string{"cores": "2", "name": "a", "scsi0": "local:100/a,size=1G", "unused0": "local:100/b"})
	digest := c.Digest()
	other := c.Clone()
	other.Pending["cores"] = "4"
	if other.Digest() == digest || c.Digest() != digest || len(digest) != 40 {
		t.Error("the digest does not depend on the content")
	}
	c.AddUnused("local:100/a") // in use
	c.AddUnused("local:100/b") // listed
	c.AddUnused("local:100/c")
	if c.Options["unused1"] != "local:100/c" || c.Options["unused2"] != "" {
		t.Errorf("got %v", c.Options)
	}
	other.Deleted["name"] = false
	shown := other.Show(false)
	if shown["name"] != nil || Value("cores", "4") != shown["cores"] {
		t.Errorf("got %v", shown)
	}
	other.Pending = map[string]string{"cores": "2"}
	other.Deleted = map[string]bool{"gone": true}
	other.Cleanup()
	if len(other.Pending)+len(other.Deleted) != 0 || !maps.Equal(other.Options, map[string]string{"cores": "2", "name": "a", "scsi0": "local:100/a,size=1G", "unused0": "local:100/b"}) {
		t.Errorf("got %+v", other)
	}
	if c.MemoryMiB() != 512 || c.CPUs() != 2 {
		t.Errorf("got %d MiB, %d processors", c.MemoryMiB(), c.CPUs())
	}
}
