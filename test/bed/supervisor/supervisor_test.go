package supervisor

import (
	"context"
	"io"
	"os"
	"path/filepath"
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

// TestPidFiles checks that the supervisor can be distinguished from its
// programs, because it must be ended first.
func TestPidFiles(t *testing.T) {
	g := NewWithT(t)
	dir := start(t, Process{Args: []string{"/bin/sleep", "1000"}})
	g.Eventually(func() ([]string, error) { return Names(dir) }, 10*time.Second).Should(Equal([]string{"sample"}))
	g.Expect(Pid(dir, Self)).To(Equal(os.Getpid()))
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
}
