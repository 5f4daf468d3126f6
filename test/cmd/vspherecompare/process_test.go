package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestParseUsage(t *testing.T) {
	const stat = "97 (a (b) c) S 1 97 97 0 -1 4194560 9000 0 0 0 123 45 0 0 20 0 11 0 1296000 1300000000 15000 1844"
	tests := []struct {
		name, stat, status string
		want               usage
		fails              bool
	}{
		{name: "all there", stat: stat, status: "Name:\tx\nVmHWM:\t   61440 kB\nVmRSS:\t 100 kB\n", want: usage{CPU: 1680 * time.Millisecond, PeakMiB: 60}},
		{name: "no memory", stat: stat, status: "Name:\tx\n", fails: true},
		{name: "cut off", stat: "97 (x) S 1", status: "VmHWM:\t 1 kB\n", fails: true},
		{name: "no number", stat: stat, status: "VmHWM:\t many kB\n", fails: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := parseUsage(test.stat, test.status)
			g.Expect(err != nil).To(Equal(test.fails))
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func TestProcess(t *testing.T) {
	g := NewWithT(t)
	log := filepath.Join(t.TempDir(), "log")
	p, err := startProcess(exec.CommandContext(t.Context(), "sh", "-c", "echo on; exec sleep 600"), log)
	g.Expect(err).NotTo(HaveOccurred())
	used, err := p.usage()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(used.PeakMiB).To(BeNumerically(">", 0))
	p.stop()

	p, err = startProcess(exec.CommandContext(t.Context(), "sh", "-c", "echo gone; exit 3"), log)
	g.Expect(err).NotTo(HaveOccurred())
	// The end of a manager ends the wait for it at once.
	started := time.Now()
	g.Eventually(p.dead, 10*time.Second).Should(MatchError(ContainSubstring("exit status 3")))
	g.Expect(p.awaitReady(context.Background(), "127.0.0.1:1")).To(MatchError(ContainSubstring("the manager ended")))
	g.Expect(time.Since(started)).To(BeNumerically("<", time.Minute))
	p.stop()
	text, err := os.ReadFile(log)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).To(Equal("gone\n"))
}
