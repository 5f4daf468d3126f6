package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Self is the name under which a supervisor has its own pid file.
const Self = "supervisor"

// endTimeout is how long End waits for a supervisor or program to end after a
// signal.
const endTimeout = 5 * time.Second

// identity distinguishes a process from all that get its process ID later, also
// after a reboot, which pid files of users other than root survive.
type identity struct {
	pid int
	// started is the start time of the process, in ticks since the boot.
	started uint64
	boot    string
}

// identify returns the identity of a process, and whether it runs: one that its
// parent has not reaped yet has an identity, but does not run. If there is no such
// process, the error is os.ErrProcessDone.
func identify(pid int) (id identity, runs bool, err error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, false, fmt.Errorf("reading boot ID: %w", err)
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return id, false, os.ErrProcessDone
	}
	if err != nil {
		return id, false, fmt.Errorf("reading process %d: %w", pid, err)
	}
	// The second field is the program's name, which may contain spaces and ")".
	fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
	if len(fields) < 20 {
		return id, false, fmt.Errorf("reading process %d: %q has too few fields", pid, stat)
	}
	started, err := strconv.ParseUint(fields[19], 10, 64) // field 22 of the file
	if err != nil {
		return id, false, fmt.Errorf("reading process %d: %w", pid, err)
	}
	id = identity{pid: pid, started: started, boot: strings.TrimSpace(string(boot))}
	return id, fields[0] != "Z" && fields[0] != "X", nil
}

// WritePid writes the pid file of a process in one step, so that no reader sees
// half of it.
func WritePid(dir, name string, pid int) error {
	id, _, err := identify(pid)
	if err != nil {
		return fmt.Errorf("writing pid file: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing pid file: %w", err)
	}
	// Two processes write the file of a supervisor: it and the one that started it.
	file, err := os.CreateTemp(dir, name+".new")
	if err != nil {
		return fmt.Errorf("writing pid file: %w", err)
	}
	_, err = fmt.Fprintln(file, id.pid, id.started, id.boot)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("writing pid file: %w", err)
	}
	if err := os.Rename(file.Name(), filepath.Join(dir, name+".pid")); err != nil {
		return fmt.Errorf("writing pid file: %w", err)
	}
	return nil
}

// readPid returns the process of a pid file.
func readPid(dir, name string) (identity, error) {
	var id identity
	data, err := os.ReadFile(filepath.Join(dir, name+".pid"))
	if err != nil {
		return id, fmt.Errorf("finding process of %s: %w", name, err)
	}
	if _, err := fmt.Sscan(string(data), &id.pid, &id.started, &id.boot); err != nil {
		// An older version wrote a number only: no process can be compared with it.
		return id, fmt.Errorf("finding process of %s: %w", name, os.ErrProcessDone)
	}
	return id, nil
}

// Pid returns the process ID of a program from its pid file.
func Pid(dir, name string) (int, error) {
	id, err := readPid(dir, name)
	return id.pid, err
}

// Signal sends a signal to a program. If its process has ended, Signal returns
// os.ErrProcessDone, and another process with the same ID gets no signal.
func Signal(dir, name string, signal os.Signal) error {
	id, err := readPid(dir, name)
	if err != nil {
		return err
	}
	// The handle refers to one process. It is taken before the check, so that the
	// checked process gets the signal.
	process, err := os.FindProcess(id.pid)
	if err != nil {
		return fmt.Errorf("finding process %d of %s: %w", id.pid, name, err)
	}
	defer func() { _ = process.Release() }()
	switch now, runs, err := identify(id.pid); {
	case err != nil:
		return fmt.Errorf("sending a signal to %s: %w", name, err)
	case now != id || !runs:
		return fmt.Errorf("sending a signal to %s: %w", name, os.ErrProcessDone)
	}
	if err := process.Signal(signal); err != nil {
		return fmt.Errorf("sending %s to %s: %w", signal, name, err)
	}
	return nil
}

// End ends a supervisor, and then its programs except for those that are kept.
// The supervisor ends first, because it would start the others again.
func End(dir string, kept ...string) error {
	// It finishes the pid files of the programs that it starts at this moment.
	if err := end(dir, Self, syscall.SIGTERM); err != nil {
		if err := end(dir, Self, syscall.SIGKILL); err != nil {
			return err
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.pid"))
	if err != nil {
		return fmt.Errorf("listing programs: %w", err)
	}
	var errs []error
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".pid")
		if !slices.Contains(kept, name) {
			errs = append(errs, end(dir, name, syscall.SIGKILL))
		}
	}
	return errors.Join(errs...)
}

// end sends a signal to a program, and waits until it has ended.
func end(dir, name string, signal os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	err := Signal(dir, name, signal)
	for err == nil {
		if !sleep(ctx, look) {
			return fmt.Errorf("ending %s: it still runs %s after %s", name, endTimeout, signal)
		}
		err = Signal(dir, name, syscall.Signal(0))
	}
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
