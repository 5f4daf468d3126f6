package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pterm/pterm"
	"golang.org/x/term"
)

// redraw is the interval at which a terminal is redrawn.
const redraw = 200 * time.Millisecond

// longest is how much of a note is shown.
const longest = 100

// state is how far a line of the board is.
type state int

const (
	running state = iota
	done
	failed
)

// line is one step or one object on the board.
type line struct {
	name  string
	phase string
	// note is the reason why the line waits.
	note         string
	state        state
	began, ended time.Time
}

// board shows the progress: redrawn continuously on a terminal, and elsewhere as one plain line for
// each change.
type board struct {
	out   io.Writer
	area  *pterm.AreaPrinter
	began time.Time
	now   func() time.Time

	mu    sync.Mutex
	lines []*line
	steps []*line
	stop  chan struct{}
	ended sync.WaitGroup
}

// newBoard starts a board.
func newBoard(out *os.File) *board {
	b := &board{out: out, began: time.Now(), now: time.Now, stop: make(chan struct{})}
	if !term.IsTerminal(int(out.Fd())) {
		return b
	}
	b.area = &pterm.AreaPrinter{}
	b.ended.Go(b.animate)
	return b
}

// animate draws the terminal until the board is closed.
func (b *board) animate() {
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		select {
		case <-b.stop:
			b.area.Update(b.render())
			_ = b.area.Stop()
			return
		case <-ticker.C:
			b.area.Update(b.render())
		}
	}
}

// close draws the board for the last time.
func (b *board) close() {
	close(b.stop)
	b.ended.Wait()
}

// step shows that a step runs, until the function it returns is called.
func (b *board) step(name string) func(error) {
	b.mu.Lock()
	l := &line{name: name, began: b.now()}
	b.lines = append(b.lines, l)
	b.steps = append(b.steps, l)
	b.mu.Unlock()
	return func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		l.ended, l.note, l.state = b.now(), "", done
		if err != nil {
			l.state = failed
		}
		b.plain(l)
	}
}

// show shows the phase of an object, and since when it is on the board.
func (b *board) show(name, phase, note string, s state) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var l *line
	for _, candidate := range b.lines {
		if candidate.name == name {
			l = candidate
		}
	}
	if l == nil {
		l = &line{name: name, began: b.now()}
		b.lines = append(b.lines, l)
	}
	changed := l.phase != phase || l.state != s
	if s == running {
		l.ended = time.Time{}
	} else if l.ended.IsZero() {
		l.ended = b.now()
	}
	l.phase, l.note, l.state = phase, note, s
	if changed {
		b.plain(l)
	}
}

// Write receives the output of a step: it becomes a note on a terminal, and plain lines elsewhere.
func (b *board) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.area == nil {
		return b.out.Write(p)
	}
	if last := len(b.steps); last > 0 {
		text := strings.TrimSpace(string(p))
		b.steps[last-1].note = text[strings.LastIndex(text, "\n")+1:]
	}
	return len(p), nil
}

// plain prints one line where there is no terminal. The caller holds the lock.
func (b *board) plain(l *line) {
	if b.area != nil {
		return
	}
	fmt.Fprintf(b.out, "%6.1f s  %s\n", b.now().Sub(b.began).Seconds(), l.text(b.now()))
}

// render returns all lines for a terminal.
func (b *board) render() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	width := pterm.GetTerminalWidth()
	for _, l := range fit(b.lines, pterm.GetTerminalHeight()-2) {
		row := []rune(l.text(b.now()))
		// A row that wraps would put the cursor into the wrong one.
		if len(row) > width-3 {
			row = row[:max(width-3, 0)]
		}
		text.WriteString(l.mark() + " " + string(row) + "\n")
	}
	return text.String()
}

// fit drops lines until at most rows lines remain, the oldest finished lines first: a terminal
// cannot redraw lines that it has scrolled away.
func fit(lines []*line, rows int) []*line {
	excess := len(lines) - max(rows, 1)
	var kept []*line
	for _, l := range lines {
		if excess > 0 && l.state == done {
			excess--
			continue
		}
		kept = append(kept, l)
	}
	return kept[max(excess, 0):]
}

// mark returns a sign for the progress of the line.
func (l *line) mark() string {
	switch l.state {
	case done:
		return pterm.Green("✓")
	case failed:
		return pterm.Red("✗")
	default:
		return pterm.Yellow("•")
	}
}

// text is the line without its mark.
func (l *line) text(now time.Time) string {
	end := l.ended
	if end.IsZero() {
		end = now
	}
	text := fmt.Sprintf("%-46s %-14s %6.1f s", l.name, l.word(), end.Sub(l.began).Seconds())
	if l.note == "" {
		return text
	}
	note := []rune(l.note)
	if len(note) > longest {
		note = append(note[:longest-1], '…')
	}
	return text + "  " + string(note)
}

// word returns a word for the progress of the line.
func (l *line) word() string {
	switch {
	case l.phase != "":
		return l.phase
	case l.state == done:
		return "done"
	case l.state == failed:
		return "failed"
	default:
		return "running"
	}
}

// times returns the duration of each step.
func (b *board) times() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	for _, l := range b.steps {
		fmt.Fprintf(&text, "  %-46s %6.1f s\n", l.name, l.ended.Sub(l.began).Seconds())
	}
	return text.String()
}
