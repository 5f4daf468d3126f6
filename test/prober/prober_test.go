package prober

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// A probe every 100 ms; a success takes 10 ms, a failure 1 s.
func series(start time.Time, answered string) []answer {
	var answers []answer
	for i, mark := range answered {
		a := answer{started: start.Add(time.Duration(i) * 100 * time.Millisecond)}
		a.answered = a.started.Add(10 * time.Millisecond)
		if mark == 'x' {
			a.err, a.answered = errors.New("no answer"), a.started.Add(time.Second)
		}
		answers = append(answers, a)
	}
	return answers
}

func TestReport(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		answered       string
		failures       int
		outages        int
		longest, total time.Duration
	}{
		"always answered":      {answered: "....."},
		"never asked":          {},
		"one lost":             {answered: "..x..", failures: 1, outages: 1, longest: 110 * time.Millisecond, total: 110 * time.Millisecond},
		"two outages":          {answered: ".x..xxx.", failures: 4, outages: 2, longest: 310 * time.Millisecond, total: 420 * time.Millisecond},
		"not ended":            {answered: "..xx", failures: 2, outages: 1, longest: 4800 * time.Millisecond, total: 4800 * time.Millisecond},
		"answered only at end": {answered: "xxx.", failures: 3, outages: 1, longest: 310 * time.Millisecond, total: 310 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			answers := series(start, test.answered)
			// Failures are known last.
			for i, j := 0, len(answers)-1; i < j; i, j = i+1, j-1 {
				answers[i], answers[j] = answers[j], answers[i]
			}
			r := report(answers, start.Add(5*time.Second))
			g.Expect(r.Checks).To(Equal(len(test.answered)))
			g.Expect(r.Failures).To(Equal(test.failures))
			g.Expect(r.Outages).To(HaveLen(test.outages))
			g.Expect(r.Longest().Length).To(Equal(test.longest))
			g.Expect(r.Total()).To(Equal(test.total))
		})
	}
}

func TestProberSeesAnOutage(t *testing.T) {
	g := NewWithT(t)
	var down atomic.Bool
	p := Start(t.Context(), 5*time.Millisecond, time.Second, func(context.Context) error {
		if down.Load() {
			return errors.New("down")
		}
		return nil
	})
	g.Eventually(func() int { return p.Since(time.Time{}).Checks }, 10*time.Second).Should(BeNumerically(">", 3))
	g.Expect(p.Since(time.Time{}).Failures).To(BeZero())
	down.Store(true)
	g.Eventually(func() int { return p.Since(time.Time{}).Failures }, 10*time.Second).Should(BeNumerically(">", 3))
	down.Store(false)
	back := time.Now()
	g.Eventually(func() int { return p.Since(back).Checks }, 10*time.Second).Should(BeNumerically(">", 3))
	r := p.Stop()
	g.Expect(r.Outages).To(HaveLen(1))
	g.Expect(r.Longest().Cause).To(MatchError("down"))
	g.Expect(r.String()).To(ContainSubstring("down"))
}

func TestProberBoundsAQuestion(t *testing.T) {
	g := NewWithT(t)
	p := Start(t.Context(), time.Hour, 5*time.Millisecond, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	g.Eventually(func() int { return p.Since(time.Time{}).Failures }, 10*time.Second).Should(Equal(1))
	g.Expect(p.Stop().Longest().Cause).To(MatchError(context.DeadlineExceeded))
}
