package bed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroup is a directory of the cgroup2 hierarchy. Whatever a program of the
// bed starts stays in it, so it names what has to be killed, also after a
// crash.
type cgroup string

// managementCgroup is the cgroup of a bed's own programs, without the hosts.
func managementCgroup(name string) (cgroup, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("finding cgroups: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		mount, filesystem, found := strings.Cut(line, " - ")
		if fields := strings.Fields(mount); found && len(fields) > 4 && strings.HasPrefix(filesystem, "cgroup2 ") {
			return cgroup(filepath.Join(fields[4], "nova-"+name, "mgmt")), nil
		}
	}
	return "", errors.New("finding cgroups: no cgroup2 file system is mounted")
}

// open makes the cgroup and returns its directory, for a process to start in.
func (c cgroup) open() (*os.File, error) {
	if err := os.MkdirAll(string(c), 0o755); err != nil {
		return nil, fmt.Errorf("making cgroup: %w", err)
	}
	dir, err := os.Open(string(c))
	if err != nil {
		return nil, fmt.Errorf("opening cgroup: %w", err)
	}
	return dir, nil
}

// remove kills what is in the cgroup, waits until it is gone and removes it.
func (c cgroup) remove(ctx context.Context) error {
	for {
		pids, err := os.ReadFile(filepath.Join(string(c), "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("emptying cgroup: %w", err)
		}
		if len(bytes.TrimSpace(pids)) == 0 {
			break
		}
		for field := range strings.FieldsSeq(string(pids)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("emptying cgroup: %w", err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("emptying cgroup: %w", err)
			}
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("emptying cgroup: %w", err)
		}
	}
	for _, dir := range []string{string(c), filepath.Dir(string(c))} {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("removing cgroup: %w", err)
		}
	}
	return nil
}

// pause waits, or returns why the context ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
