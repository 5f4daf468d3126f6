package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// meter measures programs of a bed.
type meter struct {
	bed   *bed.Bed
	names []string

	pids   []int
	before []time.Duration
}

// usage is the resource usage of programs during a measurement.
type usage struct {
	processor time.Duration
	text      string
}

// String returns a line for the output.
func (u usage) String() string { return u.text }

// begin starts to measure. The most memory is counted from here on.
func (m *meter) begin() error {
	m.pids, m.before = nil, nil
	for _, name := range m.names {
		pid, err := m.bed.Pid(name)
		if err != nil {
			return err
		}
		used, err := processorTime(pid)
		if err != nil {
			return err
		}
		// 5 resets the peak of the resident memory.
		if err := os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "clear_refs"), []byte("5"), 0); err != nil {
			return fmt.Errorf("resetting peak memory of %s: %w", name, err)
		}
		m.pids, m.before = append(m.pids, pid), append(m.before, used)
	}
	return nil
}

// end returns the usage since begin. A program that was restarted since then is an error, because
// the usage of its former process is lost.
func (m *meter) end() (usage, error) {
	var total usage
	parts := make([]string, len(m.names))
	for i, name := range m.names {
		pid, err := m.bed.Pid(name)
		if err == nil && pid != m.pids[i] {
			err = errors.New("it was restarted meanwhile, see its log")
		}
		if err != nil {
			return usage{}, fmt.Errorf("measuring %s: %w", name, err)
		}
		now, err := processorTime(pid)
		if err != nil {
			return usage{}, err
		}
		peak, err := memoryOf(pid, "VmHWM:")
		if err != nil {
			return usage{}, err
		}
		used := now - m.before[i]
		total.processor += used
		parts[i] = fmt.Sprintf("%s %.1f s and %d MiB", name, used.Seconds(), peak)
	}
	total.text = "  processor time and most memory: " + strings.Join(parts, ", ") + "\n"
	return total, nil
}

// peak is the most memory of each program since begin, added up, in MiB.
func (m *meter) peak() (int, error) {
	total := 0
	for _, pid := range m.pids {
		mib, err := memoryOf(pid, "VmHWM:")
		if err != nil {
			return 0, err
		}
		total += mib
	}
	return total, nil
}

// memoryOf reads a line of a process's status, in MiB.
func memoryOf(pid int, field string) (int, error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, fmt.Errorf("reading memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " kB"))
			if err != nil {
				return 0, fmt.Errorf("reading memory: %w", err)
			}
			return kib >> 10, nil
		}
	}
	return 0, fmt.Errorf("reading memory: process %d has none", pid)
}
