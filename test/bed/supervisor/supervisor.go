package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// The first restarts of a program follow at once. The pauses increase while it
// keeps crashing.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	// stableAfter is the run time after which earlier crashes no longer delay a
	// restart.
	stableAfter = 10 * time.Second
	// look is how often the files a program waits for are looked for.
	look = 50 * time.Millisecond
)

// Process is a program that is kept running.
type Process struct {
	// Name names its log and its pid file.
	Name string `json:"name"`
	// Args are the program's path and its arguments.
	Args []string `json:"args"`
	// Env is added to the supervisor's own environment.
	Env []string `json:"env,omitempty"`
	// After are files that must exist before each start.
	After []string `json:"after,omitempty"`
	// Once means that the program is not restarted: its state would be lost, and
	// a new state would only hide that.
	Once bool `json:"once,omitempty"`
}

// Plan contains the programs that a supervisor keeps running.
type Plan struct {
	// Logs is the directory of the log files.
	Logs string `json:"logs"`
	// Pids is the directory of the pid files.
	Pids string `json:"pids"`
	// Processes are the programs.
	Processes []Process `json:"processes"`
}

// WritePlan writes a plan for Run.
func WritePlan(path string, plan Plan) error {
	data, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		return fmt.Errorf("writing plan: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing plan: %w", err)
	}
	return nil
}

// Run keeps the programs of a plan running until the context ends. Then it
// leaves them as they are.
func Run(ctx context.Context, path string, log io.Writer) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading plan: %w", err)
	}
	var plan Plan
	if err := json.Unmarshal(data, &plan); err != nil {
		return fmt.Errorf("reading plan %s: %w", path, err)
	}
	for _, dir := range []string{plan.Logs, plan.Pids} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
	}
	if err := WritePid(plan.Pids, Self, os.Getpid()); err != nil {
		return err
	}
	out := &lines{w: log}
	var wait sync.WaitGroup
	for _, p := range plan.Processes {
		wait.Go(func() { keep(ctx, plan, p, out) })
	}
	wait.Wait()
	return nil
}

// keep runs one program again and again.
func keep(ctx context.Context, plan Plan, p Process, log *lines) {
	pause := firstPause
	for awaitFiles(ctx, p.After) && ctx.Err() == nil {
		started := time.Now()
		err := runOnce(ctx, plan, p)
		if ctx.Err() != nil {
			return
		}
		log.printf("%s ended after %s: %v", p.Name, time.Since(started).Round(time.Millisecond), err)
		if p.Once {
			return
		}
		if time.Since(started) > stableAfter {
			pause = firstPause
		}
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// runOnce runs a program until it ends or the context does. It leads a session
// of its own, so that no signal meant for the supervisor reaches it.
func runOnce(ctx context.Context, plan Plan, p Process) error {
	out, err := os.OpenFile(filepath.Join(plan.Logs, p.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(p.Args[0], p.Args[1:]...) //nolint:noctx // it outlives this process on purpose
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	if err := WritePid(plan.Pids, p.Name, cmd.Process.Pid); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitFiles waits until all files exist, and reports whether they do.
func awaitFiles(ctx context.Context, paths []string) bool {
	for _, path := range paths {
		for {
			_, err := os.Stat(path)
			if err == nil {
				break
			}
			if !errors.Is(err, fs.ErrNotExist) || !sleep(ctx, look) {
				return false
			}
		}
	}
	return true
}

// sleep waits, and reports whether the context still stands.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// lines writes whole lines from several goroutines.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.w, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}
