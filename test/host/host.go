package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// specFile stores the spec for a process that adopts the host.
	specFile = "spec.json"
	// diskFile exists if the disk is complete.
	diskFile = "disk"
	// softOff is systemd's signal to power off, SIGRTMIN+4.
	softOff = syscall.Signal(38)
	// endTimeout bounds the time to clean up after a host.
	endTimeout = time.Minute
)

// CloudInitStatus is a command for Exec that prints the status of cloud-init. Newer versions of
// cloud-init end it with 2 if there were warnings, and deprecated settings are warnings.
var CloudInitStatus = []string{"sh", "-c", "cloud-init status || test $? -eq 2"}

// Host is a running host. All methods may be called at the same time.
type Host struct {
	spec          Spec
	dir           string
	group         group
	lower         string
	ignition      string
	netns, bridge string
	ended         func()
	lock          *os.File
	done          chan struct{}
	changes       chan []Address

	mu        sync.Mutex
	pidfd     int
	off       bool
	addresses []Address
	unwatch   func()
}

// Spec is the spec with which the host was powered on.
func (h *Host) Spec() Spec {
	return h.spec
}

// Done is closed when the host is off, by whatever cause, and nothing of it
// but its disk is left.
func (h *Host) Done() <-chan struct{} {
	return h.done
}

// ConsoleLog is the path of the host's console output since it was powered on:
// its journal and the output of cloud-init.
func (h *Host) ConsoleLog() string {
	return filepath.Join(h.dir, "console.log")
}

// PowerOff ends the host and returns when it is off: at once, or softly by
// asking its systemd to shut down. When ctx ends first the host stays as it is.
func (h *Host) PowerOff(ctx context.Context, soft bool) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		h.mu.Lock()
		h.off = true
		err := h.signal(soft)
		h.mu.Unlock()
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("powering off %q: %w", h.spec.Name, err)
		}
		select {
		case <-h.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("powering off %q: %w", h.spec.Name, ctx.Err())
		case <-ticker.C:
			// A signal that came before systemd listened is lost: say it again.
		}
	}
}

// signal sends a termination signal to PID 1. The caller holds the lock.
func (h *Host) signal(soft bool) error {
	if h.pidfd < 0 {
		return nil
	}
	sig := unix.SIGKILL
	if soft {
		sig = softOff
	}
	return unix.PidfdSendSignal(h.pidfd, sig, nil, 0)
}

// GuestInfo returns the settings as the guest sees and wrote them.
func (h *Host) GuestInfo() (map[string]string, error) {
	dir := filepath.Join(h.dir, "guestinfo")
	names, err := fileNames(dir)
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue // being written
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("reading guestinfo: %w", err)
		}
		info[name] = string(data)
	}
	return info, nil
}

// SetGuestInfo changes one setting under the running guest. An empty value
// removes it.
func (h *Host) SetGuestInfo(key, value string) error {
	path := filepath.Join(h.dir, "guestinfo", filepath.Base(key))
	if value == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing guestinfo: %w", err)
		}
		return nil
	}
	half := filepath.Join(filepath.Dir(path), "."+filepath.Base(key))
	if err := os.WriteFile(half, []byte(value), 0o600); err != nil {
		return fmt.Errorf("writing guestinfo: %w", err)
	}
	return os.Rename(half, path)
}

// Exec runs a command in the host and returns its standard output. The error
// contains its standard error.
func (h *Host) Exec(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "/usr/bin/env", append([]string{
		"-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
	}, args...)...)
	cmd.Dir = "/"
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// This does not use nsenter: nsenter stops together with its child when
	// systemd stops all processes for a shutdown, and then the child is not
	// reaped and the host never ends.
	err := onThread(func() error {
		if err := h.enter(); err != nil {
			return err
		}
		return cmd.Run()
	})
	if err != nil {
		return out.Bytes(), fmt.Errorf("running %s in %q: %w: %s", args[0], h.spec.Name, err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}

// enter moves the thread, and the processes that it starts, into the host.
func (h *Host) enter() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pidfd < 0 {
		return errors.New("the host is off")
	}
	// A thread that shares its working directory with others cannot move.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	return unix.Setns(h.pidfd, unix.CLONE_NEWNS|unix.CLONE_NEWUTS|unix.CLONE_NEWIPC|unix.CLONE_NEWNET|unix.CLONE_NEWPID|unix.CLONE_NEWCGROUP)
}

// writeSettings writes the settings of the virtual machine for the launch
// script.
func (h *Host) writeSettings() error {
	spec, err := json.Marshal(h.spec)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		specFile:      spec,
		"launch.sh":   []byte(launchScript),
		"console.log": nil,
		"launch.log":  nil,
	}
	for _, name := range []string{"dmi", "guestinfo"} {
		dir := filepath.Join(h.dir, name)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for key, value := range h.spec.DMI {
		files[filepath.Join("dmi", key)] = []byte(value + "\n")
	}
	if len(h.spec.DMI) == 0 {
		files["dmi/sys_vendor"] = []byte("\n")
	}
	for key, value := range h.spec.GuestInfo {
		files[filepath.Join("guestinfo", key)] = []byte(value)
	}
	for name, data := range files {
		if err := writeFile(filepath.Join(h.dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return h.writeSeeds()
}

// launch starts PID 1 of the host.
func (h *Host) launch() (_ *exec.Cmd, err error) {
	if err := h.group.make(); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(h.dir, "launch.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	// The process that powers a host on may end before the host.
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-eu", filepath.Join(h.dir, "launch.sh"), "enter")
	var trees []string
	for _, tree := range h.group.trees {
		trees = append(trees, tree.path+"|"+tree.kind+"|"+tree.options)
	}
	cmd.Env = append(os.Environ(), "HOST_DIR="+h.dir, "HOST_LOWER="+h.lower, "HOST_IGNITION="+h.ignition,
		"HOST_TREES="+strings.Join(trees, " "))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	// A host is no part of the terminal or the session of who powered it on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET}
	ready, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the launch script: %w", err)
	}
	defer func() {
		if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	// This is done before the host continues by itself, so that a later process
	// finds it.
	if err := h.group.add(cmd.Process.Pid); err != nil {
		return nil, err
	}
	if err := h.connect(cmd.Process.Pid); err != nil {
		return nil, fmt.Errorf("connecting network cards: %w", err)
	}
	if _, err := ready.Write([]byte("\n")); err != nil {
		return nil, fmt.Errorf("starting the host: %w", err)
	}
	return cmd, errors.Join(ready.Close(), h.attach(cmd.Process.Pid))
}

// attach takes pid for PID 1 of the host and watches its addresses.
func (h *Host) attach(pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("opening process %d: %w", pid, err)
	}
	unwatch, err := h.watch(pid)
	if err != nil {
		_ = unix.Close(pidfd)
		return fmt.Errorf("watching addresses: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pidfd, h.unwatch = pidfd, unwatch
	return nil
}

// run waits for the end of the host, starts it again after a reboot, and cleans
// up. cmd is nil for an adopted host.
func (h *Host) run(cmd *exec.Cmd) {
	for {
		rebooted := h.wait(cmd)
		h.unwatch()
		h.mu.Lock()
		h.publish(nil)
		_ = unix.Close(h.pidfd)
		h.pidfd = -1
		again := rebooted && !h.off
		h.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		err := h.clear(ctx)
		cancel()
		if err != nil {
			h.note(err)
		}
		if !again {
			break
		}
		if cmd, err = h.launch(); err != nil {
			h.note(err)
			break
		}
	}
	h.ended()
	close(h.changes)
	close(h.done)
}

// clear ends all processes of the host and takes its disks off.
func (h *Host) clear(ctx context.Context) error {
	return errors.Join(h.group.destroy(ctx), detachLoops(h.dir))
}

// wait waits for the end of PID 1 and reports whether it requested a reboot:
// the kernel indicates this by the signal with which PID 1 of a namespace ends.
func (h *Host) wait(cmd *exec.Cmd) (rebooted bool) {
	if cmd == nil {
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(h.pidfd), Events: unix.POLLIN}}, -1)
			if !errors.Is(err, unix.EINTR) {
				return false
			}
		}
	}
	var exit *exec.ExitError
	if !errors.As(cmd.Wait(), &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGHUP
}

// note adds a line to the host's launch log, where people look for the cause
// of a host that is not there.
func (h *Host) note(err error) {
	f, openErr := os.OpenFile(filepath.Join(h.dir, "launch.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if openErr != nil {
		return
	}
	_, _ = fmt.Fprintln(f, err)
	_ = f.Close()
}

// findInit returns the PID 1 of the host as the machine numbers it, 0 when the
// host does not run: it is PID 1 of a namespace one below our own.
func (h *Host) findInit() (int, error) {
	own, err := namespacePIDs("self")
	if err != nil {
		return 0, err
	}
	pids, err := h.group.processes()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		numbers, err := namespacePIDs(strconv.Itoa(pid))
		if err != nil {
			continue // gone
		}
		if len(numbers) == len(own)+1 && numbers[len(numbers)-1] == "1" {
			return pid, nil
		}
	}
	return 0, nil
}

// namespacePIDs returns the numbers of a process in the pid namespaces that it
// is in, ours first.
func namespacePIDs(pid string) ([]string, error) {
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.Fields(numbers), nil
		}
	}
	return nil, fmt.Errorf("process %s: the kernel does not report its IDs in namespaces", pid)
}
