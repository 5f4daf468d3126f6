package vsphere

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// shortTimeouts are the timeouts of tests that lose responses and sessions.
var shortTimeouts = timeouts{
	request: 400 * time.Millisecond, poll: time.Second, wait: 500 * time.Millisecond,
	minRetry: 20 * time.Millisecond, maxRetry: 200 * time.Millisecond,
	minLoginRetry: 20 * time.Millisecond, maxLoginRetry: 200 * time.Millisecond,
	lag: time.Second, batchDelay: 50 * time.Millisecond,
}

// craft is a machine that a pilot reconciles to a target: VM running, or VM
// deleted.
type craft struct {
	machine *infrav1.NovaVSphereMachine
	launch  hypervisor.CreateOptions
	// soft requests a shutdown of the guest first; asked is set once that was
	// requested.
	soft, asked bool
	// provisioned is set once its VM was up, as spec.providerID is. If the VM
	// is reported as deleted after that, the machine is lost.
	provisioned bool
	lost        bool
	// done is closed once the target is reached.
	done chan struct{}
	// began and ended are the times of the start and the end.
	began, ended time.Time
	failures     int
}

// pilot reconciles machines as controllers/machine does, with as many workers
// and the same queue. It observes a machine only after an event or a failure,
// so a missing event makes a test fail.
type pilot struct {
	b         *bed
	connector *Connector
	queue     workqueue.TypedRateLimitingInterface[hypervisor.Key]
	wg        sync.WaitGroup
	stop      context.CancelFunc

	mu     sync.Mutex
	crafts map[hypervisor.Key]*craft
}

// fly starts a pilot for a connector.
func (b *bed) fly(c *Connector) *pilot {
	ctx, cancel := context.WithCancel(b.ctx())
	p := &pilot{
		b: b, connector: c, stop: cancel, crafts: map[hypervisor.Key]*craft{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[hypervisor.Key](10*time.Millisecond, time.Second)),
	}
	p.wg.Go(func() {
		for {
			select {
			case key := <-c.Changes():
				p.queue.Add(key)
			case <-ctx.Done():
				return
			}
		}
	})
	for range 10 {
		p.wg.Go(func() { p.work(ctx) })
	}
	b.t.Cleanup(p.land)
	return p
}

// land stops the pilot.
func (p *pilot) land() {
	p.stop()
	p.queue.ShutDown()
	p.wg.Wait()
}

func (p *pilot) work(ctx context.Context) {
	for {
		key, down := p.queue.Get()
		if down {
			return
		}
		p.mu.Lock()
		c := p.crafts[key]
		p.mu.Unlock()
		if c != nil {
			err := p.step(ctx, key, c)
			switch {
			case err == nil:
				p.queue.Forget(key)
			case hypervisor.IsWaiting(err):
			default:
				c.failures++
				p.queue.AddRateLimited(key)
			}
		}
		p.queue.Done(key)
	}
}

// step is one reconcile.
func (p *pilot) step(ctx context.Context, key hypervisor.Key, c *craft) error {
	m := c.machine
	d, err := p.connector.Connect(ctx, m)
	if err != nil {
		return err
	}
	vm, err := d.Observe(ctx, m)
	if err != nil {
		return err // the queue retries it a short time later
	}
	deleting := !m.DeletionTimestamp.IsZero()
	switch {
	case deleting && vm.State == hypervisor.Absent:
		p.arrive(key, c)
		return nil
	case vm.State == hypervisor.Busy:
		return nil
	case deleting && vm.State == hypervisor.Running && c.soft && !c.asked:
		c.asked = true
		return d.Shutdown(ctx, m)
	case deleting:
		return d.Delete(ctx, m)
	case vm.State == hypervisor.Absent && c.provisioned:
		c.lost = true
		p.arrive(key, c)
		return nil
	case vm.State == hypervisor.Absent:
		return d.Create(ctx, m, c.launch)
	case vm.State == hypervisor.Stopped && vm.OutOfSync != "" && !c.provisioned:
		return d.Sync(ctx, m, false)
	case vm.State == hypervisor.Stopped:
		return d.Start(ctx, m)
	}
	c.provisioned = true
	m.Spec.ProviderID = vm.ProviderID
	if vm.OutOfSync != "" || vm.UserData {
		return d.Sync(ctx, m, true)
	}
	if inv := d.(*driver).session.inv; inv.needsRead(p.b.id(m)) {
		p.queue.AddAfter(key, soonest) // its tags are not known yet
		return nil
	}
	p.arrive(key, c)
	return nil
}

// arrive ends the work on a machine.
func (p *pilot) arrive(key hypervisor.Key, c *craft) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crafts[key] == c {
		delete(p.crafts, key)
		c.ended = time.Now()
		close(c.done)
	}
}

// take starts the work on a machine: to create its VM, or to delete it if the
// machine is being deleted.
func (p *pilot) take(m *infrav1.NovaVSphereMachine, as ...func(*craft)) *craft {
	c := &craft{machine: m, launch: launch, done: make(chan struct{}), began: time.Now()}
	for _, change := range as {
		change(c)
	}
	p.mu.Lock()
	p.crafts[keyOf(m)] = c
	p.mu.Unlock()
	p.queue.Add(keyOf(m))
	return c
}

// arrived waits until all machines have reached their target. It fails if none
// of them does for some time: the total time depends on the test machine.
func (p *pilot) arrived(within time.Duration, crafts ...*craft) {
	p.b.t.Helper()
	p.await(within, crafts, func(int) {})
}

// await calls meanwhile with the number of machines in progress, until all
// have reached their target. It fails if none does within a time.
func (p *pilot) await(within time.Duration, crafts []*craft, meanwhile func(left int)) {
	p.b.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	least, last := len(crafts), time.Now()
	for ; ; <-tick.C {
		left := 0
		for _, c := range crafts {
			select {
			case <-c.done:
			default:
				left++
			}
		}
		if left < least {
			least, last = left, time.Now()
		}
		meanwhile(left)
		if left == 0 {
			return
		}
		if time.Since(last) > within {
			p.b.t.Fatalf("none of %d of %d machines arrived within %s: %s", left, len(crafts), within, p.stranded(crafts))
		}
	}
}

// stranded describes the machines that have not reached their target.
func (p *pilot) stranded(crafts []*craft) string {
	var out []string
	for _, c := range crafts {
		select {
		case <-c.done:
			continue
		default:
		}
		d, err := p.connector.Connect(p.b.ctx(), c.machine)
		if err != nil {
			out = append(out, fmt.Sprintf("%s: %v", c.machine.Name, err))
			continue
		}
		vm, err := d.Observe(p.b.ctx(), c.machine)
		out = append(out, fmt.Sprintf("%s is %+v, %v; number %d in line, provisioned %t, %d failures, %d in the queue",
			c.machine.Name, vm, err, d.(*driver).session.creations.Position(keyOf(c.machine)), c.provisioned, c.failures, p.queue.NumRequeues(keyOf(c.machine))))
	}
	return strings.Join(out, "\n")
}

// machines returns machines called prefix-0 and so on.
func (b *bed) machines(prefix string, n int) []*infrav1.NovaVSphereMachine {
	out := make([]*infrav1.NovaVSphereMachine, n)
	for i := range out {
		out[i] = b.machine(fmt.Sprintf("%s-%d", prefix, i))
	}
	return out
}

// id returns the instance UUID of a machine's VM.
func (b *bed) id(m *infrav1.NovaVSphereMachine) uuid.UUID {
	id, err := instanceUUID(b.cluster.Annotations[infrav1.ClusterIDAnnotation], keyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	return id
}

// once checks that every machine has exactly one VM, and that no other VM has
// a derived UUID.
func (b *bed) once(machines []*infrav1.NovaVSphereMachine) {
	b.t.Helper()
	want := map[string]int{}
	for _, m := range machines {
		want[b.id(m).String()] = 1
	}
	have := map[string]int{}
	for _, vm := range b.vc.VMs() {
		if !vm.Template {
			have[vm.InstanceUUID]++
		}
	}
	b.Expect(have).To(Equal(want))
}

// spent logs the requests and the time of a phase.
func (b *bed) spent(t *testing.T, what string, n int, since time.Time) {
	t.Helper()
	t.Logf("%s: %d requests for %d machines (%.2f each), %s: %v", what, b.total(), n,
		float64(b.total())/float64(n), time.Since(since).Round(10*time.Millisecond), b.vc.Requests())
}
