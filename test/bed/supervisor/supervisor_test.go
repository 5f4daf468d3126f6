package supervisor

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// start runs a supervisor over one shell script and returns its directory.
func start(t *testing.T, p Process) string {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	p.Name = "sample"
	plan := filepath.Join(dir, "plan.json")
	g.Expect(WritePlan(plan, Plan{Logs: dir, Pids: dir, Processes: []Process{p}})).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, plan, io.Discard) }()
	t.Cleanup(func() {
		cancel()
		g.Expect(<-done).To(Succeed())
		if pid, err := Pid(dir, "sample"); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return dir
}

func pidOf(dir string) func() (int, error) {
	return func() (int, error) { return Pid(dir, "sample") }
}

func TestKilledProgramIsStartedAgain(t *testing.T) {
	g := NewWithT(t)
	dir := start(t, Process{Args: []string{"/bin/sleep", "1000"}})
	g.Eventually(pidOf(dir), 10*time.Second).Should(BeNumerically(">", 0))
	first, err := Pid(dir, "sample")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(syscall.Kill(first, syscall.SIGKILL)).To(Succeed())
	g.Eventually(pidOf(dir), 5*time.Second).ShouldNot(Equal(first))
}

// TestEnd checks that a supervisor ends before its programs, because it starts
// those again.
func TestEnd(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	supervisor := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	program := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	kept := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	for name, cmd := range map[string]*exec.Cmd{Self: supervisor, "sample": program, "kept": kept} {
		g.Expect(cmd.Start()).To(Succeed())
		g.Expect(WritePid(dir, name, cmd.Process.Pid)).To(Succeed())
	}
	g.Expect(End(dir, "kept")).To(Succeed())
	for cmd, by := range map[*exec.Cmd]string{supervisor: "signal: terminated", program: "signal: killed"} {
		g.Expect(cmd.Wait()).To(MatchError(by))
	}
	g.Expect(Signal(dir, "sample", syscall.Signal(0))).To(MatchError(os.ErrProcessDone))
	g.Expect(Signal(dir, "kept", syscall.Signal(0))).To(Succeed())
	g.Expect(End(dir, "kept")).To(Succeed(), "all has ended already")
}

// TestEndSparesOtherProcesses checks that a process is not killed because it has
// the ID of one that has ended, or that ran before a reboot.
func TestEndSparesOtherProcesses(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	other := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	g.Expect(other.Start()).To(Succeed())
	id, _, err := identify(other.Process.Pid)
	g.Expect(err).NotTo(HaveOccurred())
	for name, written := range map[string]identity{
		Self:      {pid: id.pid, started: id.started - 1, boot: id.boot},
		"started": {pid: id.pid, started: id.started - 1, boot: id.boot},
		"boot":    {pid: id.pid, started: id.started, boot: "00000000-0000-4000-8000-000000000000"},
	} {
		content := fmt.Sprintln(written.pid, written.started, written.boot)
		g.Expect(os.WriteFile(filepath.Join(dir, name+".pid"), []byte(content), 0o600)).To(Succeed())
	}
	g.Expect(End(dir)).To(Succeed())
	_, runs, err := identify(other.Process.Pid)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(runs).To(BeTrue())
}

func TestPidFileOfASupervisor(t *testing.T) {
	g := NewWithT(t)
	dir := start(t, Process{Args: []string{"/bin/sleep", "1000"}})
	g.Eventually(pidOf(dir), 10*time.Second).Should(BeNumerically(">", 0))
	g.Expect(Pid(dir, Self)).To(Equal(os.Getpid()))
}

// The pid files of an older version cannot be compared with a process.
func TestEndIgnoresIncompletePidFiles(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(dir, "old.pid"), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)).To(Succeed())
	g.Expect(End(dir)).To(Succeed())
}

func TestOnceIsNotStartedAgain(t *testing.T) {
	g := NewWithT(t)
	log := filepath.Join(t.TempDir(), "runs")
	dir := start(t, Process{Args: []string{"/bin/sh", "-c", "echo run >> " + log}, Once: true})
	g.Eventually(pidOf(dir), 10*time.Second).Should(BeNumerically(">", 0))
	read := func() (string, error) {
		data, err := os.ReadFile(log)
		return string(data), err
	}
	g.Eventually(read, 10*time.Second).Should(Equal("run\n"))
	g.Consistently(read, 3*firstPause).Should(Equal("run\n"))
}

func TestProgramWaitsForItsFiles(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	dir := start(t, Process{Args: []string{"/bin/sleep", "1000"}, After: []string{file}})
	g.Consistently(func() error {
		_, err := Pid(dir, "sample")
		return err
	}, 4*look).Should(HaveOccurred())
	g.Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
	g.Eventually(pidOf(dir), 10*time.Second).Should(BeNumerically(">", 0))
	g.Expect(os.Remove(file)).To(Succeed())
	ended, err := Pid(dir, "sample")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(Signal(dir, "sample", syscall.SIGKILL)).To(Succeed())
	g.Consistently(pidOf(dir), 3*firstPause).Should(Equal(ended), "nor is it started again without them")
	g.Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
	g.Eventually(pidOf(dir), 10*time.Second).ShouldNot(Equal(ended))
}
