package sitecheck

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	// slow is a latency of a small request above which creations take noticeably
	// longer.
	slow = 500 * time.Millisecond
	// maxSkew is the difference of clocks above which certificates may not be
	// valid yet on a new node.
	maxSkew = time.Minute
)

// Level is how serious a Finding is.
type Level string

// Levels. OK means as expected, and Info a fact to note. Warn is a limit or a difference from the
// behavior of the simulator; Fail prevents the creation of machines.
const (
	OK   Level = "ok"
	Info Level = "info"
	Warn Level = "WARN"
	Fail Level = "FAIL"
)

// Finding is the result of a check.
type Finding struct {
	Level Level
	// Check is the name of the check, and Detail its result as text.
	Check, Detail string
}

// Report is the results of all checks, in their order.
type Report []Finding

func (r *Report) addf(level Level, check, format string, args ...any) {
	*r = append(*r, Finding{Level: level, Check: check, Detail: fmt.Sprintf(format, args...)})
}

// failed adds a failure if err is not nil, and reports whether it is.
func (r *Report) failed(check string, err error) bool {
	if err != nil {
		r.addf(Fail, check, "%v", err)
	}
	return err != nil
}

// clock compares the clock of a hypervisor with that of this machine.
func (r *Report) clock(now time.Time) {
	if skew := time.Until(now).Abs(); skew > maxSkew {
		r.addf(Warn, "clock", "differs from this machine's by %s: nodes take the time of their hosts", skew.Round(time.Second))
	} else {
		r.addf(OK, "clock", "differs from this machine's by less than %s", maxSkew)
	}
}

// percentiles notes the latency of small requests.
func (r *Report) percentiles(took []time.Duration) {
	slices.Sort(took)
	p50, p90 := took[len(took)/2], took[len(took)*9/10-1]
	level := OK
	if p90 > slow {
		level = Warn
	}
	r.addf(level, "latency", "p50 %s, p90 %s", p50.Round(time.Millisecond), p90.Round(time.Millisecond))
}

// levelOf is the level of something that should be.
func levelOf(is bool) Level {
	if is {
		return OK
	}
	return Warn
}

// Count returns the number of findings of a level.
func (r *Report) Count(level Level) (n int) {
	for _, f := range *r {
		if f.Level == level {
			n++
		}
	}
	return n
}

// Write prints the report as a table, and a line with the counts at the end.
func (r *Report) Write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range *r {
		if _, err := fmt.Fprintf(table, "%s\t%s\t%s\n", f.Level, f.Check, strings.ReplaceAll(f.Detail, "\n", " ")); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	_, err := fmt.Fprintf(w, "site-check: ok=%d info=%d warn=%d fail=%d\n", r.Count(OK), r.Count(Info), r.Count(Warn), r.Count(Fail))
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
