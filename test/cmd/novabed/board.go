package main

import (
	"fmt"
	"io"
	"os"
	"slices"
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

// widest is how much space the names have.
const widest = 46

// spinner is the mark of a running line, one frame for each redraw.
const spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

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

// object is one object of the tree below the steps.
type object struct {
	name string
	// depth is the number of its owners in the tree.
	depth       int
	phase, note string
	state       state
}

// board shows the progress: redrawn continuously on a terminal, and elsewhere as one plain line for
// each change.
type board struct {
	out   io.Writer
	area  *pterm.AreaPrinter
	began time.Time
	now   func() time.Time
	// total is the number of steps, 0 if it is not known.
	total int

	mu    sync.Mutex
	steps []*line
	// objects are the tree of the workload cluster.
	objects []*line
	stop    chan struct{}
	ended   sync.WaitGroup
}

// newBoard starts a board for a number of steps, 0 if it is not known.
func newBoard(out *os.File, total int) *board {
	b := &board{out: out, began: time.Now(), now: time.Now, total: total, stop: make(chan struct{})}
	if os.Getenv("NO_COLOR") != "" {
		pterm.DisableColor()
	}
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
	b.steps = append(b.steps, l)
	if b.total > 0 {
		l.name = fmt.Sprintf("[%d/%d] %s", len(b.steps), b.total, name)
	}
	b.plain(l)
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

// show replaces the tree of objects. An object keeps the time since which it is on the board.
func (b *board) show(objects []object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := map[string]*line{}
	for _, l := range b.objects {
		before[l.name] = l
	}
	b.objects = b.objects[:0:0]
	for _, o := range objects {
		name := strings.Repeat("  ", o.depth) + o.name
		l, known := before[name]
		if !known {
			l = &line{name: name, began: b.now()}
		}
		b.objects = append(b.objects, l)
		changed := !known || l.phase != o.phase || l.state != o.state
		if o.state == running {
			l.ended = time.Time{}
		} else if l.ended.IsZero() {
			l.ended = b.now()
		}
		l.phase, l.note, l.state = o.phase, o.note, o.state
		if changed {
			b.plain(l)
		}
	}
}

// Write receives the output of a step: it becomes a note on a terminal, and plain lines elsewhere.
func (b *board) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.area == nil {
		return b.out.Write(p)
	}
	for _, l := range b.steps {
		if l.state == running {
			text := strings.TrimSpace(string(p))
			l.note = text[strings.LastIndex(text, "\n")+1:]
			break
		}
	}
	return len(p), nil
}

// plain prints one line where there is no terminal. The caller holds the lock.
func (b *board) plain(l *line) {
	if b.area != nil {
		return
	}
	if l.phase == "" && l.state == running {
		fmt.Fprintf(b.out, "%6s  %s …\n", elapsed(b.now().Sub(b.began)), l.name)
		return
	}
	fmt.Fprintf(b.out, "%6s  %s\n", elapsed(b.now().Sub(b.began)), l.text(widest, b.now()))
}

// render returns all lines for a terminal.
func (b *board) render() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	width := pterm.GetTerminalWidth()
	lines := fit(append(slices.Clone(b.steps), b.objects...), pterm.GetTerminalHeight()-2)
	names := 0
	for _, l := range lines {
		names = max(names, len([]rune(l.name)))
	}
	for _, l := range lines {
		row := []rune(l.text(min(names, widest), b.now()))
		// A row that wraps would put the cursor into the wrong one.
		if len(row) > width-3 {
			row = row[:max(width-3, 0)]
		}
		text.WriteString(l.mark(b.now()) + " " + string(row) + "\n")
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
func (l *line) mark(now time.Time) string {
	switch l.state {
	case done:
		return pterm.Green("✓")
	case failed:
		return pterm.Red("✗")
	default:
		frames := []rune(spinner)
		return pterm.Yellow(string(frames[now.UnixMilli()/redraw.Milliseconds()%int64(len(frames))]))
	}
}

// elapsed is a duration for people, for instance 5m12s.
func elapsed(d time.Duration) string { return d.Round(time.Second).String() }

// text is the line without its mark, with so much space for its name.
func (l *line) text(width int, now time.Time) string {
	end := l.ended
	if end.IsZero() {
		end = now
	}
	text := fmt.Sprintf("%-*s %-12s %6s", width, l.name, l.word(), elapsed(end.Sub(l.began)))
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
		return ""
	}
}

// times returns the duration of each step.
func (b *board) times() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	for _, l := range b.steps {
		fmt.Fprintf(&text, "  %-*s %6s\n", widest, l.name, elapsed(l.ended.Sub(l.began)))
	}
	return text.String()
}
