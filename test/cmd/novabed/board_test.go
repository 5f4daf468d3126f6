package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	ended := b.step("Building")
	*now = now.Add(2 * time.Second)
	ended(nil)
	b.show("Machine a", "Provisioning", "Waiting for an address", running)
	*now = now.Add(time.Second)
	b.show("Machine a", "Provisioning", "Waiting for an address still", running)
	*now = now.Add(3 * time.Second)
	b.show("Machine a", "Running", "", done)
	b.step("Breaking")(errors.New("broken"))
	want := "" +
		"   2.0 s  Building                                       done              2.0 s\n" +
		"   2.0 s  Machine a                                      Provisioning      0.0 s  Waiting for an address\n" +
		"   6.0 s  Machine a                                      Running           4.0 s\n" +
		"   6.0 s  Breaking                                       failed            0.0 s\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("board (-want +got):\n%s", diff)
	}
}

func TestBoardTellsWhatStepsTook(t *testing.T) {
	b, _, now := plainBoard()
	ended := b.step("Building")
	*now = now.Add(1500 * time.Millisecond)
	ended(nil)
	want := "  Building                                          1.5 s\n"
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
