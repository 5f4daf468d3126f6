package prober

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Check probes once. It fails unless there is a response in time.
type Check func(ctx context.Context) error

// Outage is a time without an answer.
type Outage struct {
	// From is the time of the first failed probe.
	From time.Time
	// Length is the time until a later question was answered, or until the
	// report if none was.
	Length time.Duration
	// Failures are the questions in between.
	Failures int
	// Cause is why the first one failed.
	Cause error
}

// Report is the result of the probes.
type Report struct {
	Checks, Failures int
	// Outages are in the order of time.
	Outages []Outage
}

// Longest is the longest outage.
func (r Report) Longest() Outage {
	if len(r.Outages) == 0 {
		return Outage{}
	}
	return slices.MaxFunc(r.Outages, func(a, b Outage) int { return cmp.Compare(a.Length, b.Length) })
}

// Total is the time of all outages together.
func (r Report) Total() time.Duration {
	var total time.Duration
	for _, o := range r.Outages {
		total += o.Length
	}
	return total
}

// String returns the results as a sentence.
func (r Report) String() string {
	longest := r.Longest()
	text := fmt.Sprintf("%d of %d questions failed, longest outage %.1f s, all outages %.1f s", r.Failures, r.Checks, longest.Length.Seconds(), r.Total().Seconds())
	if longest.Cause != nil {
		text += fmt.Sprintf(" (from %s: %v)", longest.From.Format(time.TimeOnly), longest.Cause)
	}
	return text
}

// answer is how one question went.
type answer struct {
	started, answered time.Time
	err               error
}

// Prober probes at regular intervals, without waiting for the result of the
// previous probe.
type Prober struct {
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	answers []answer
}

// Start probes until Stop is called. A probe must succeed within the timeout.
func Start(ctx context.Context, interval, timeout time.Duration, check Check) *Prober {
	ctx, stop := context.WithCancel(ctx)
	p := &Prober{stop: stop, done: make(chan struct{})}
	go p.run(ctx, interval, timeout, check)
	return p
}

func (p *Prober) run(ctx context.Context, interval, timeout time.Duration, check Check) {
	defer close(p.done)
	var asking sync.WaitGroup
	defer asking.Wait()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		asking.Go(func() { p.ask(ctx, timeout, check) })
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ask probes once. A probe that Stop canceled is not counted.
func (p *Prober) ask(ctx context.Context, timeout time.Duration, check Check) {
	a := answer{started: time.Now()}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	a.err = check(bounded)
	cancel()
	a.answered = time.Now()
	if a.err != nil && ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	p.answers = append(p.answers, a)
	p.mu.Unlock()
}

// Stop stops the probes and returns the results.
func (p *Prober) Stop() Report {
	p.stop()
	<-p.done
	return p.Since(time.Time{})
}

// Since returns the results of the probes at that time or later.
func (p *Prober) Since(from time.Time) Report {
	p.mu.Lock()
	var seen []answer
	for _, a := range p.answers {
		if !a.started.Before(from) {
			seen = append(seen, a)
		}
	}
	p.mu.Unlock()
	return report(seen, time.Now())
}

// report combines results. An outage that has not ended is counted until now.
func report(answers []answer, now time.Time) Report {
	// They come as they were answered.
	slices.SortFunc(answers, func(a, b answer) int { return a.started.Compare(b.started) })
	r := Report{Checks: len(answers)}
	out := false
	for _, a := range answers {
		last := len(r.Outages) - 1
		switch {
		case a.err == nil && out:
			r.Outages[last].Length = a.answered.Sub(r.Outages[last].From)
			out = false
		case a.err != nil && out:
			r.Failures++
			r.Outages[last].Failures++
		case a.err != nil:
			r.Failures++
			r.Outages = append(r.Outages, Outage{From: a.started, Failures: 1, Cause: a.err})
			out = true
		}
	}
	if out {
		last := len(r.Outages) - 1
		r.Outages[last].Length = now.Sub(r.Outages[last].From)
	}
	return r
}
