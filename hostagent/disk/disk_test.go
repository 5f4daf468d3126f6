package disk

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

const gib = 1 << 30 / sectorSize

// newMachine has a root file system on the first partition of a disk that ends at some
// sector. growpart extends it to the end, and a rescan of the disk finds the real size.
func newMachine(t *testing.T, name, mount string, size, partition int64) *agenttest.Machine {
	t.Helper()
	n := agenttest.New(t, map[string]string{
		"growpart":       `echo "growpart $*" >>"$T/calls"; d="$T/sys/devices/` + name + `"; echo $(($(cat "$d/size") - 2048 - 33)) >"$d/` + name + `1/size"`,
		"systemd-growfs": `"$T/bin/fail" || exit 1; echo "growfs $*" >>"$T/calls"`,
		"fail":           ":",
	})
	disk := "sys/devices/" + name + "/"
	n.Put(disk+"size", fmt.Sprintln(size))
	n.Put(disk+name+"1/partition", "1\n")
	n.Put(disk+name+"1/start", "2048\n")
	n.Put(disk+name+"1/size", fmt.Sprintln(partition))
	n.Put("proc/self/mountinfo", "20 1 0:19 / /proc rw - proc proc rw\n"+mount)
	for _, dir := range []string{"sys/dev/block", "sys/class/block"} {
		if err := os.MkdirAll(n.At(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"sys/dev/block/8:1": "../../devices/" + name + "/" + name + "1", "sys/class/block/" + name + "1": "../../devices/" + name + "/" + name + "1"} {
		if err := os.Symlink(target, n.At(link)); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// logical puts a logical volume on the partition.
func logical(t *testing.T, n *agenttest.Machine) {
	t.Helper()
	if err := os.MkdirAll(n.At("sys/devices/dm-0/slaves"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"sys/dev/block/253:0": "../../devices/dm-0", "sys/devices/dm-0/slaves/sda1": "../../sda/sda1"} {
		if err := os.Symlink(target, n.At(link)); err != nil {
			t.Fatal(err)
		}
	}
}

// kernel finds the new size of a disk after a rescan.
type kernel struct {
	n   *agenttest.Machine
	now time.Time
}

func (k *kernel) Now() time.Time { return k.now }

func (k *kernel) Sleep(_ context.Context, d time.Duration) error {
	k.now = k.now.Add(d)
	if k.n.Get("sys/devices/sda/device/rescan") == "1" {
		k.n.Put("sys/devices/sda/size", fmt.Sprintln(20*gib))
	}
	return nil
}

func TestSize(t *testing.T) {
	for mount, want := range map[string]int64{
		"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n":         20,
		"21 1 253:0 / / rw - xfs /dev/mapper/root rw\n": 20,
		"21 1 0:30 / / rw - overlay overlay rw\n":       0,
		"21 1 8:1 / /var/lib rw - ext4 /dev/sda1 rw\n":  0,
	} {
		n := newMachine(t, "sda", mount, 20*gib, 10*gib)
		logical(t, n)
		if got := Size(n.Machine, "/"); got != want {
			t.Errorf("%s: %d GiB, want %d", mount, got, want)
		}
	}
}

func TestGrow(t *testing.T) {
	const (
		ext4 = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
		full = 20*gib - 2048 - 33
	)
	for name, tc := range map[string]struct {
		disk, mount     string
		size, partition int64
		wanted          int64
		prepare         func(*testing.T, *agenttest.Machine)
		calls, err      string
	}{
		"partition":         {mount: ext4, size: 20 * gib, partition: 10*gib - 4096, wanted: 20, calls: "growpart /dev/sda 1\ngrowfs /\n"},
		"file system":       {mount: ext4, size: 20 * gib, partition: full, wanted: 20, calls: "growfs /\n"},
		"larger disk":       {mount: ext4, size: 30 * gib, partition: full, wanted: 20, calls: "growpart /dev/sda 1\ngrowfs /\n"},
		"not set":           {mount: ext4, size: 20 * gib, partition: 10 * gib},
		"no disk":           {mount: "21 1 0:30 / / rw - overlay overlay rw\n", size: 20 * gib, partition: 10 * gib, wanted: 20},
		"Btrfs":             {mount: "21 1 0:30 /root / rw - btrfs /dev/sda1 rw\n", size: 20 * gib, partition: full, wanted: 20, calls: "growfs /\n"},
		"covered":           {mount: ext4 + "22 1 0:30 / / rw - overlay overlay rw\n", size: 20 * gib, partition: 10 * gib, wanted: 20},
		"name with a slash": {disk: "cciss!c0d0", mount: ext4, size: 20 * gib, partition: 10 * gib, wanted: 20, calls: "growpart /dev/cciss/c0d0 1\ngrowfs /\n"},
		"rescan": {mount: ext4, size: 10 * gib, partition: 10*gib - 4096, wanted: 20, calls: "growpart /dev/sda 1\ngrowfs /\n", prepare: func(_ *testing.T, n *agenttest.Machine) {
			n.Put("sys/devices/sda/device/rescan", "")
			n.Machine = machine.New(machine.Options{Root: n.At("/"), Path: []string{n.At("bin"), "/usr/bin", "/bin"}, Env: []string{"T=" + n.At("/")}, Clock: &kernel{n: n}})
		}},
		"disk is small": {mount: ext4, size: 10 * gib, partition: 10*gib - 4096, wanted: 20, err: "the kernel has 10 GiB of /dev/sda instead of 20"},
		"no growpart": {mount: ext4, size: 20 * gib, partition: 10 * gib, wanted: 20, err: "growpart is not installed, so partition /dev/sda1 cannot be extended", prepare: func(_ *testing.T, n *agenttest.Machine) {
			n.Machine = machine.New(machine.Options{Root: n.At("/"), Path: []string{n.At("nothing")}})
		}},
		"growfs fails": {mount: ext4, size: 20 * gib, partition: full, wanted: 20, err: "extending file system: running systemd-growfs: exit status 1", prepare: func(_ *testing.T, n *agenttest.Machine) {
			n.Command("fail", "exit 1")
		}},
		"logical volume":                {mount: "21 1 253:0 / / rw - xfs /dev/mapper/root rw\n", size: 20 * gib, partition: 10 * gib, wanted: 20, prepare: logical, err: "/dev/dm-0 is a logical volume, which the host agent does not extend: extend /dev/sda1, or delete the Machine to replace it"},
		"logical volume with all space": {mount: "21 1 253:0 / / rw - xfs /dev/mapper/root rw\n", size: 20 * gib, partition: full, wanted: 20, prepare: logical},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.disk == "" {
				tc.disk = "sda"
			}
			n := newMachine(t, tc.disk, tc.mount, tc.size, tc.partition)
			if tc.prepare != nil {
				tc.prepare(t, n)
			}
			err := Grow(t.Context(), n.Machine, "/", tc.wanted)
			if got := fmt.Sprint(err); tc.err != "" && got != tc.err || tc.err == "" && err != nil {
				t.Errorf("error %v, want %s", err, tc.err)
			}
			if calls := n.Get("calls"); !strings.HasSuffix(calls, tc.calls) || (calls == "") != (tc.calls == "") {
				t.Errorf("calls %q, want %q", calls, tc.calls)
			}
		})
	}
}
