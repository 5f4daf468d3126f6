package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dataDir holds the data disks of a host: a file each, named as its kernel names
// the disk.
const dataDir = "data"

// makeDataDisks makes the files of data disks in a host's directory.
func makeDataDisks(dir string, gib []int64) error {
	if err := os.MkdirAll(filepath.Join(dir, dataDir), 0o700); err != nil {
		return err
	}
	for i, size := range gib {
		file, err := os.Create(filepath.Join(dir, dataDir, "sd"+string(rune('b'+i))))
		if err != nil {
			return err
		}
		if err := errors.Join(file.Truncate(size<<30), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// detachLoops frees the loop devices of the machine whose files are below a
// directory: a host that was killed leaves them.
func detachLoops(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(file), dir+"/") {
			continue // free, or another one's
		}
		device := filepath.Join("/dev", strings.Split(name, "/")[3])
		if err := detachLoop(device); err != nil {
			errs = append(errs, fmt.Errorf("detaching %s: %w", device, err))
		}
	}
	return errors.Join(errs...)
}

func detachLoop(device string) (err error) {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return err
	}
	return nil
}
