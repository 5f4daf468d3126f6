package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the unit of processor time in /proc, the same on all that Go
// runs on.
const clockTick = 10 * time.Millisecond

// usage is the resource usage of a process so far.
type usage struct {
	// CPU is the time of the processor, in user and kernel mode.
	CPU time.Duration
	// PeakMiB is the most memory that was resident.
	PeakMiB float64
}

// process is a running manager.
type process struct {
	cmd   *exec.Cmd
	log   *os.File
	ended chan error
}

func startProcess(cmd *exec.Cmd, logPath string) (*process, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, fmt.Errorf("making log: %w", err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting manager: %w", err), log.Close())
	}
	p := &process{cmd: cmd, log: log, ended: make(chan error, 1)}
	go func() { p.ended <- cmd.Wait() }()
	return p, nil
}

// stop ends the process.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	<-p.ended
	_ = p.log.Close()
}

// dead returns why the process does not run any more.
func (p *process) dead() error {
	select {
	case err := <-p.ended:
		p.ended <- err
		return fmt.Errorf("the manager ended: %w", errors.Join(err, errors.New("see "+p.log.Name())))
	default:
		return nil
	}
}

// awaitReady waits until the manager reports that it is ready.
func (p *process) awaitReady(ctx context.Context, health string) error {
	client := &http.Client{Timeout: time.Second}
	return poll(ctx, 2*time.Minute, "waiting for the manager", func(ctx context.Context) error {
		if err := p.dead(); err != nil {
			return final{err}
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("not ready: %s", res.Status)
		}
		return nil
	})
}

// usage reads the resource usage of the process.
func (p *process) usage() (usage, error) {
	dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return usage{}, fmt.Errorf("reading use of processor: %w", err)
	}
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return usage{}, fmt.Errorf("reading use of memory: %w", err)
	}
	return parseUsage(string(stat), string(status))
}

// parseUsage reads /proc/PID/stat and /proc/PID/status.
func parseUsage(stat, status string) (usage, error) {
	// The name of the program comes second, in brackets, and may hold anything.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return usage{}, fmt.Errorf("reading use of processor: %q", stat)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return usage{}, fmt.Errorf("reading use of processor: %w", err)
	}
	u := usage{CPU: time.Duration(user+system) * clockTick}
	for line := range strings.Lines(status) {
		value, ok := strings.CutPrefix(line, "VmHWM:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
		if err != nil {
			return usage{}, fmt.Errorf("reading use of memory: %w", err)
		}
		u.PeakMiB = kib / 1024
		return u, nil
	}
	return usage{}, errors.New("reading use of memory: no VmHWM")
}

// ownCPU is the processor time of this command, which vCenter is a part of.
func ownCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// final is an error that no retry can fix.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// poll retries until it succeeds or the time is over, and then returns the error of the last
// attempt.
func poll(ctx context.Context, timeout time.Duration, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if _, ok := errors.AsType[final](err); ok {
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
