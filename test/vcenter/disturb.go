package vcenter

import (
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
)

// Disturbance is a disturbance between a request and its response.
type Disturbance int

// Disturbances. In those that are Lost or Stuck the request is carried out.
const (
	// Undisturbed requests are answered.
	Undisturbed Disturbance = iota
	// Refused requests meet a connection that is cut.
	Refused
	// Failed requests are answered that the server has a problem.
	Failed
	// AnswerLost means that the connection is cut after the work is done.
	AnswerLost
	// Hanging requests are not answered, and nothing is done.
	Hanging
	// AnswerStuck means that the work is done and the answer never comes.
	AnswerStuck
)

// disturbed selects the disturbances of requests.
type disturbed struct {
	mu     sync.Mutex
	choose func(method string) Disturbance
}

// SetDisturbance sets choose, which selects the disturbance of each request by
// its method; nil ends the disturbances. Calls of choose do not overlap.
func (s *Server) SetDisturbance(choose func(method string) Disturbance) {
	s.disturbed.mu.Lock()
	defer s.disturbed.mu.Unlock()
	s.disturbed.choose = choose
}

func (d *disturbed) next(method string) Disturbance {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.choose == nil {
		return Undisturbed
	}
	return d.choose(method)
}

// disturb responds to a request with the disturbance.
func (s *Server) disturb(w http.ResponseWriter, r *http.Request, method string, serve func(http.ResponseWriter)) {
	switch s.disturbed.next(method) {
	case Undisturbed:
		serve(w)
	case Refused:
		panic(http.ErrAbortHandler) // the documented way to cut a connection
	case Failed:
		s.answerUnavailable(w)
	case AnswerLost:
		serve(&bufferedWriter{header: http.Header{}})
		panic(http.ErrAbortHandler)
	case Hanging:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case AnswerStuck:
		serve(&bufferedWriter{header: http.Header{}})
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
}

// SetLatency has each request of a method wait so long before it is carried out.
func (s *Server) SetLatency(method string, latency time.Duration) {
	s.latencies.Store(method, latency)
}

// SetPassword changes the password of the one account. Sessions go on, those of
// the REST API too.
func (s *Server) SetPassword(password string) {
	s.world.Lock()
	defer s.world.Unlock()
	account := url.UserPassword(s.opts.Username, password)
	s.account.Store(account)
	s.svc.Listen.User = account
}

// answerUnavailable sends the response of a vCenter's proxy while the service
// behind it is unavailable.
func (s *Server) answerUnavailable(w http.ResponseWriter) {
	http.Error(w, "no healthy upstream", http.StatusServiceUnavailable)
}

// Restart restarts the vCenter: it is unreachable for the duration outage, all
// sessions end, the tasks in progress are lost, and no earlier task is listed.
// The inventory is kept.
func (s *Server) Restart(outage time.Duration) {
	s.SetDown(true)
	s.ExpireSessions()
	s.interruption.interrupt()
	s.locked(func(ctx *simulator.Context) { s.forget(ctx, refSet(taskManager(ctx).RecentTask)) })
	s.watch.touchAll()
	s.sleep(outage)
	s.SetDown(false)
}

// interruption ends the waiting of the tasks under way.
type interruption struct {
	mu   sync.Mutex
	done chan struct{}
}

func (i *interruption) interrupt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.done != nil {
		close(i.done)
	}
	i.done = nil
}

// next is closed at the next interruption.
func (i *interruption) next() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.done == nil {
		i.done = make(chan struct{})
	}
	return i.done
}

// taskCounter counts the tasks, by method.
type taskCounter struct {
	mu sync.Mutex
	// now is the number of running tasks, most the maximum number of concurrent
	// tasks, and all the total number.
	now, most, all map[string]int
}

func (t *taskCounter) start(method string) func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		t.now, t.most, t.all = map[string]int{}, map[string]int{}, map[string]int{}
	}
	t.now[method]++
	t.all[method]++
	t.most[method] = max(t.most[method], t.now[method])
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.now[method]--
	}
}

// MostTasks returns the maximum number of concurrent tasks of a method since the
// start.
func (s *Server) MostTasks(method string) int {
	s.taskCounter.mu.Lock()
	defer s.taskCounter.mu.Unlock()
	return s.taskCounter.most[method]
}

// Tasks is how many tasks of a method ran since the start. A request that was
// refused, as one over a session that has ended is, made none.
func (s *Server) Tasks(method string) int {
	s.taskCounter.mu.Lock()
	defer s.taskCounter.mu.Unlock()
	return s.taskCounter.all[method]
}
