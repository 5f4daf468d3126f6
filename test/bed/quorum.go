package bed

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
)

const (
	// quorumInterval is how often etcd is looked at.
	quorumInterval = time.Second
	// quorumTimeout is how long a look takes: a member that is off is silent.
	quorumTimeout = 2 * time.Second
	// quorumSamples are how many looks in a row make a loss: an election takes
	// a moment, and so does an answer of a busy machine.
	quorumSamples = 5
)

// QuorumWatch looks at the etcd of a tenant all the time and remembers when
// fewer members answered than it takes.
type QuorumWatch struct {
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	last   Quorum
	run    []Quorum
	losses []Loss
}

// Loss is a time in which fewer members answered than it takes.
type Loss struct {
	Quorum

	// Load is the load of the computer at that time: hosts without processor time
	// lose their quorum too.
	Load string
}

// String returns the time and the circumstances.
func (l Loss) String() string {
	return fmt.Sprintf("%s: %d of %d voters answered, load %s", l.At.Format(time.TimeOnly), l.Answering, l.Voters, l.Load)
}

// load is the machine's average of the last minute.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	average, _, _ := strings.Cut(string(data), " ")
	return average
}

// Quorum is the result of a query of etcd.
type Quorum struct {
	At time.Time
	// Voters are the members that vote, Answering those of them that answer.
	Voters, Answering int
}

// Spare is how many more members may fail.
func (q Quorum) Spare() int { return q.Answering - (q.Voters/2 + 1) }

// WatchQuorum looks until Stop. No address but the members' own is used.
func WatchQuorum(ctx context.Context, members *Etcd) *QuorumWatch {
	ctx, stop := context.WithCancel(ctx)
	w := &QuorumWatch{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		ticker := time.NewTicker(quorumInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			bounded, cancel := context.WithTimeout(ctx, quorumTimeout)
			health, err := members.Health(bounded)
			cancel()
			if ctx.Err() == nil {
				w.note(look(health, err))
			}
		}
	}()
	return w
}

// look counts the members. If no member responds, the number of voters is not
// known.
func look(health *etcd.Health, err error) Quorum {
	q := Quorum{At: time.Now()}
	if err != nil {
		q.Voters = 1
		return q
	}
	for _, member := range health.Members {
		if member.Learner {
			continue
		}
		q.Voters++
		if member.Answers {
			q.Answering++
		}
	}
	return q
}

func (w *QuorumWatch) note(q Quorum) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = q
	if q.Spare() >= 0 {
		w.run = nil
		return
	}
	w.run = append(w.run, q)
	if len(w.run) == quorumSamples {
		w.losses = append(w.losses, Loss{Quorum: Quorum{At: w.run[0].At, Voters: q.Voters, Answering: q.Answering}, Load: load()})
	}
}

// Last is the last look.
func (w *QuorumWatch) Last() Quorum {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Stop ends looking and returns the losses of quorum.
func (w *QuorumWatch) Stop() []Loss {
	w.stop()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.losses
}
