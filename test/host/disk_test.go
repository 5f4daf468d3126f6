package host_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/disk"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

// The agent extends the file system of a real disk that has got larger, once. The disk
// is a loop device, and the file system XFS: the kernel extends ext4 only for a process
// with CAP_SYS_RESOURCE.
func TestDiskIsExtended(t *testing.T) {
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	const before, after = int64(1 << 30), int64(2 << 30)
	image, mountPoint := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, before); err != nil {
		t.Fatal(err)
	}
	run("sh", "-c", "printf 'label: gpt\n,,L\n' | sfdisk --quiet "+image)
	device := run("losetup", "--find", "--show", image)
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	run("partx", "--add", device)
	t.Cleanup(func() { _ = exec.Command("partx", "--delete", device).Run() })
	run("mkfs.xfs", "-q", device+"p1")
	run("mount", device+"p1", mountPoint)
	t.Cleanup(func() { _ = exec.Command("umount", mountPoint).Run() })

	m := machine.New(machine.Options{Log: t.Output()})
	if err := disk.Grow(t.Context(), m, mountPoint, before>>30); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, after); err != nil {
		t.Fatal(err)
	}
	run("losetup", "--set-capacity", device)
	for range 2 {
		if err := disk.Grow(t.Context(), m, mountPoint, after>>30); err != nil {
			t.Fatal(err)
		}
		var stat syscall.Statfs_t
		if err := syscall.Statfs(mountPoint, &stat); err != nil {
			t.Fatal(err)
		}
		if size := int64(stat.Blocks) * stat.Bsize; size < after*9/10 {
			t.Fatalf("the file system has %d MiB on a disk of %d MiB", size>>20, after>>20)
		}
	}
}
