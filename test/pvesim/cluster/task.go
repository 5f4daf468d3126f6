package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// task is a worker of a node.
type task struct {
	c *Cluster

	upid, node, kind, id, user string
	pid                        int
	start, end                 time.Time
	exit                       string
	log                        []string
	done                       chan struct{}
	// aborted is the reason why the task must end.
	aborted error
	// doomed is the error that the task must end with.
	doomed error
	// cleanup is called if the task fails.
	cleanup func(error) error
	release func()
}

// fork starts a task for a request and returns it. work runs with the lock held.
func (q *call) fork(kind, id string, work func(t *task)) *task {
	t := q.c.fork(q.node.Name, q.user, kind, id, work)
	if q.doomed != "" {
		t.doomed = errors.New(q.doomed)
	}
	return t
}

// fork starts a task of a user on a node.
func (c *Cluster) fork(node, user, kind, id string, work func(t *task)) *task {
	c.pid++
	t := &task{c: c, node: node, kind: kind, id: id, user: user, pid: c.pid, start: time.Now(), done: make(chan struct{})}
	t.upid = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", node, t.pid, t.start.UnixMilli()&0xffffffff, t.start.Unix(), kind, id, user)
	c.tasks = append(c.tasks, t)
	c.after(c.timings[TimeFork], func() { t.check(func() { work(t) }) })
	return t
}

// check runs f, unless the task was aborted or must fail.
func (t *task) check(f func()) {
	switch {
	case t.ended():
	case t.aborted != nil:
		t.finish(t.aborted)
	case t.doomed != nil:
		t.finish(t.doomed)
	default:
		f()
	}
}

func (t *task) ended() bool { return !t.end.IsZero() }

// printf adds a line to the log.
func (t *task) printf(format string, args ...any) {
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

// then calls f after a named time, unless the task has ended by then. An error
// ends the task.
func (t *task) then(name string, f func() error) {
	t.c.after(t.c.timings[name], func() {
		t.check(func() {
			if err := f(); err != nil {
				t.finish(err)
			}
		})
	})
}

// finish ends the task.
func (t *task) finish(err error) {
	if t.ended() {
		return
	}
	if err != nil && t.cleanup != nil {
		err = t.cleanup(err)
	}
	if t.release != nil {
		t.release()
	}
	t.end = time.Now()
	t.exit = "OK"
	if err != nil {
		t.exit = firstLine(err)
		t.printf("TASK ERROR: %s", t.exit)
	} else {
		t.printf("TASK OK")
	}
	close(t.done)
}

// firstLine is the text of an error in one line.
func firstLine(err error) string {
	text, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	return text
}

// withLock calls f when the task has the file lock of a VM. The lock is released
// when the task ends.
func (t *task) withLock(vmid int, shared bool, f func() error) {
	t.c.lockFile(vmid, shared, func(release func(), err error) {
		if err != nil {
			t.finish(err)
			return
		}
		if t.ended() {
			release()
			return
		}
		before := t.release
		t.release = func() {
			release()
			if before != nil {
				before()
			}
		}
		t.check(func() {
			if err := f(); err != nil {
				t.finish(err)
			}
		})
	})
}

// fileLock is the lock of a VM's configuration file on its node.
type fileLock struct {
	exclusive bool
	holders   int
	waiting   []*waiter
	// free is closed when the lock is released, for requests that wait.
	free chan struct{}
}

type waiter struct {
	shared bool
	got    func(release func(), err error)
}

// lockFile calls got with the lock, or with an error after the timeout.
func (c *Cluster) lockFile(vmid int, shared bool, got func(release func(), err error)) {
	l := c.locks[vmid]
	if l == nil {
		l = &fileLock{free: make(chan struct{})}
		c.locks[vmid] = l
	}
	if l.holders == 0 || shared && !l.exclusive && len(l.waiting) == 0 {
		l.holders++
		l.exclusive = !shared
		got(c.releaser(vmid, l), nil)
		return
	}
	w := &waiter{shared: shared, got: got}
	l.waiting = append(l.waiting, w)
	c.after(c.timings[TimeLock], func() {
		if i := slices.Index(l.waiting, w); i >= 0 {
			l.waiting = slices.Delete(l.waiting, i, i+1)
			got(nil, lockTimeout(vmid))
		}
	})
}

func lockTimeout(vmid int) error {
	return schema.Failed("can't lock file '/var/lock/qemu-server/lock-%d.conf' - got timeout", vmid)
}

// releaser returns the function that releases a lock once.
func (c *Cluster) releaser(vmid int, l *fileLock) func() {
	released := false
	return func() {
		if released {
			return
		}
		released = true
		if l.holders--; l.holders > 0 {
			return
		}
		close(l.free)
		l.free = make(chan struct{})
		if len(l.waiting) == 0 {
			delete(c.locks, vmid)
			return
		}
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.holders, l.exclusive = 1, !next.shared
		next.got(c.releaser(vmid, l), nil)
	}
}

// blockedError is returned by handlers that must be called again when a lock is free.
type blockedError struct {
	free <-chan struct{}
	vmid int
}

func (w *blockedError) Error() string { return fmt.Sprintf("VM %d is locked by a task", w.vmid) }

// unlocked returns an error if a task has the file lock of a VM.
func (c *Cluster) unlocked(vmid int) error {
	if l := c.locks[vmid]; l != nil && l.holders > 0 {
		return &blockedError{free: l.free, vmid: vmid}
	}
	return nil
}
