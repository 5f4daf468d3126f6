package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pterm/pterm"
)

// plainBoard is a board without a terminal whose clock the test moves.
func plainBoard() (*board, *bytes.Buffer, *time.Time) {
	var out bytes.Buffer
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := &board{out: &out, began: now, stop: make(chan struct{})}
	b.now = func() time.Time { return now }
	return b, &out, &now
}

func TestBoardPrintsOneLineForEachChange(t *testing.T) {
	b, out, now := plainBoard()
	b.total = 2
	ended := b.step("Building")
	*now = now.Add(312 * time.Second)
	ended(nil)
	b.show([]object{{name: "Cluster a", phase: "Provisioned", state: done}, {name: "Machine a", depth: 1, phase: "Provisioning", note: "Waiting for an address"}})
	*now = now.Add(time.Second)
	b.show([]object{{name: "Cluster a", phase: "Provisioned", state: done}, {name: "Machine a", depth: 1, phase: "Provisioning", note: "Waiting for an address still"}})
	*now = now.Add(3 * time.Second)
	b.show([]object{{name: "Cluster a", phase: "Provisioned", state: done}, {name: "Machine a", depth: 1, phase: "Running", state: done}})
	b.step("Breaking")(errors.New("broken"))
	want := "" +
		"    0s  [1/2] Building …\n" +
		" 5m12s  [1/2] Building                                 done          5m12s\n" +
		" 5m12s  Cluster a                                      Provisioned      0s\n" +
		" 5m12s    Machine a                                    Provisioning     0s  Waiting for an address\n" +
		" 5m16s    Machine a                                    Running          4s\n" +
		" 5m16s  [2/2] Breaking …\n" +
		" 5m16s  [2/2] Breaking                                 failed           0s\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("board (-want +got):\n%s", diff)
	}
}

func TestBoardTellsWhatStepsTook(t *testing.T) {
	b, _, now := plainBoard()
	ended := b.step("Building")
	*now = now.Add(312 * time.Second)
	ended(nil)
	want := "  Building                                        5m12s\n"
	if diff := cmp.Diff(want, b.times()); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
}

func TestFit(t *testing.T) {
	lines := []*line{{name: "a", state: done}, {name: "b"}, {name: "c", state: done}, {name: "d", state: failed}}
	tests := []struct {
		reason string
		rows   int
		want   string
	}{
		{"all fit", 4, "abcd"},
		{"the oldest finished line is dropped first", 3, "bcd"},
		{"all finished lines are dropped", 2, "bd"},
		{"then the oldest", 1, "d"},
		{"something is always shown", 0, "d"},
	}
	for _, test := range tests {
		var kept strings.Builder
		for _, l := range fit(lines, test.rows) {
			kept.WriteString(l.name)
		}
		if got := kept.String(); got != test.want {
			t.Errorf("%s: fit(%d) = %q, want %q", test.reason, test.rows, got, test.want)
		}
	}
}

func TestBoardDrawsStepsAboveTheTree(t *testing.T) {
	b, _, _ := plainBoard()
	b.area = &pterm.AreaPrinter{}
	built := b.step("Building")
	b.show([]object{{name: "Cluster a", phase: "Pending"}, {name: "Machine a", depth: 1, phase: "Pending"}})
	built(nil)
	b.step("Booting")
	if _, err := b.Write([]byte("tools: building 7/18 kubelet, about 3 min left\n")); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(pterm.RemoveColorFromString(b.render()), "\n")
	for i, want := range []string{"✓ Building", "⠋ Booting", "⠋ Cluster a", "⠋   Machine a", ""} {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("line %d is %q, want %q", i, got[i], want)
		}
	}
	if !strings.Contains(got[1], "7/18 kubelet") {
		t.Errorf("the running step has no note: %q", got[1])
	}
}
