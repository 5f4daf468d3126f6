package ovirtsim

import (
	"sync"
	"time"
)

// Clock provides the server's time and its timers.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f when d has passed, outside of any other call.
	AfterFunc(d time.Duration, f func())
}

// realClock is the machine's.
type realClock struct{}

func (realClock) Now() time.Time                      { return time.Now() }
func (realClock) AfterFunc(d time.Duration, f func()) { time.AfterFunc(d, f) }

// ManualClock stands still but for Advance.
type ManualClock struct {
	mu     sync.Mutex
	now    time.Time
	alarms []alarm
}

type alarm struct {
	at time.Time
	f  func()
}

// NewManualClock returns a clock that stands at a time.
func NewManualClock(at time.Time) *ManualClock {
	return &ManualClock{now: at}
}

// Now is the time the clock stands at.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc calls f from the Advance that passes d.
func (c *ManualClock) AfterFunc(d time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarms = append(c.alarms, alarm{at: c.now.Add(d), f: f})
}

// Advance moves the clock and runs the timers that are due, in order.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		next := -1
		for i, a := range c.alarms {
			if !a.at.After(end) && (next < 0 || a.at.Before(c.alarms[next].at)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		due := c.alarms[next]
		c.alarms = append(c.alarms[:next], c.alarms[next+1:]...)
		if due.at.After(c.now) {
			c.now = due.at
		}
		c.mu.Unlock()
		due.f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}
