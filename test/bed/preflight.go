package bed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// freeGiB is the disk space that a cold start needs: build caches, the images
// from which hosts boot, and the disks of a few hosts.
const freeGiB = 10

// commands are the programs that a bed runs and cannot install itself.
var commands = []string{"go", "unshare", "nsenter", "mount"}

// Supported returns the reason why no bed can run on this computer.
func Supported() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("the test bed needs Linux, this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("the test bed needs root for network namespaces, mounts and cgroups: run it with sudo")
	}
	var missing []string
	for _, command := range commands {
		if _, err := exec.LookPath(command); err != nil {
			missing = append(missing, command)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the test bed needs these commands in PATH, which are missing: %s", strings.Join(missing, ", "))
	}
	return enoughDisk(Cache(), freeGiB)
}

// enoughDisk fails if the file system of a directory, which need not exist yet,
// has less free space than required.
func enoughDisk(dir string, gib uint64) error {
	for {
		var stat unix.Statfs_t
		err := unix.Statfs(dir, &stat)
		if errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return fmt.Errorf("measuring free disk space of %s: %w", dir, err)
		}
		if free := stat.Bavail * uint64(stat.Bsize) >> 30; free < gib {
			return fmt.Errorf("the test bed needs %d GiB of free disk space at %s, there are %d: free some, or point NOVA_CACHE elsewhere", gib, dir, free)
		}
		return nil
	}
}
