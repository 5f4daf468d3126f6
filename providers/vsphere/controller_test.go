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
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
	hypervisortest "github.com/nova-platform/cluster-api-provider-nova/test/hypervisor"
)

// shortTimeouts are the timeouts of tests that lose responses and sessions.
var shortTimeouts = vcenter.Timeouts{
	Request: 400 * time.Millisecond, Poll: time.Second, Wait: 500 * time.Millisecond,
	MinRetry: 20 * time.Millisecond, MaxRetry: 200 * time.Millisecond,
	MinLoginRetry: 20 * time.Millisecond, MaxLoginRetry: 200 * time.Millisecond,
	Lag: time.Second, BatchDelay: 50 * time.Millisecond,
}

// machineRun is a machine that a testController reconciles to a target: VM
// running, or VM deleted.
type machineRun struct {
	machine *vspherev1.NovaVSphereMachine
	options hypervisor.CreateOptions
	// graceful requests a shutdown of the guest first; shutdownRequested is set
	// once that was requested.
	graceful, shutdownRequested bool
	// provisioned is set once its VM was up, as spec.providerID is. If the VM
	// is reported as deleted after that, the machine is lost.
	provisioned bool
	lost        bool
	// done is closed once the target is reached.
	done chan struct{}
	// startedAt and endedAt are the times of the start and the end.
	startedAt, endedAt time.Time
	failures           int
	// reported is the last failure of an action that was counted.
	reported error
}

// testController reconciles machines as controllers/machine does, with as many
// workers and the same queue. It observes a machine only after an event or a
// failure, so a missing event makes a test fail.
type testController struct {
	b         *bed
	connector *Connector
	queue     workqueue.TypedRateLimitingInterface[hypervisor.Key]
	wg        sync.WaitGroup
	stop      context.CancelFunc

	mu   sync.Mutex
	runs map[hypervisor.Key]*machineRun
}

// startController starts a testController for a connector.
func (b *bed) startController(c *Connector) *testController {
	ctx, cancel := context.WithCancel(b.ctx())
	p := &testController{
		b: b, connector: c, stop: cancel, runs: map[hypervisor.Key]*machineRun{},
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
		p.wg.Go(func() { p.run(ctx) })
	}
	b.t.Cleanup(p.stopAll)
	return p
}

// stopAll stops the controller.
func (p *testController) stopAll() {
	p.stop()
	p.queue.ShutDown()
	p.wg.Wait()
}

func (p *testController) run(ctx context.Context) {
	for {
		key, down := p.queue.Get()
		if down {
			return
		}
		p.mu.Lock()
		c := p.runs[key]
		p.mu.Unlock()
		if c != nil {
			err := p.reconcile(ctx, key, c)
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

// reconcile is one reconcile.
func (p *testController) reconcile(ctx context.Context, key hypervisor.Key, c *machineRun) error {
	m := c.machine
	d, err := p.connector.Connect(ctx, m)
	if err != nil {
		return err
	}
	vm, err := d.Observe(ctx, m)
	if err == nil && vm.LastFailure != c.reported { //nolint:errorlint // another failure may be equal
		c.reported, err = vm.LastFailure, vm.LastFailure
	}
	if err != nil {
		return err // the queue retries it a short time later
	}
	deleting := !m.DeletionTimestamp.IsZero()
	switch {
	case deleting && vm.State == hypervisor.Absent:
		p.finish(key, c)
		return nil
	case vm.State == hypervisor.Busy:
		return nil
	case deleting && vm.State == hypervisor.Running && c.graceful && !c.shutdownRequested:
		c.shutdownRequested = true
		return d.Shutdown(ctx, m)
	case deleting:
		return d.Delete(ctx, m)
	case vm.State == hypervisor.Absent && c.provisioned:
		c.lost = true
		p.finish(key, c)
		return nil
	case vm.State == hypervisor.Absent:
		return d.Create(ctx, m, c.options)
	case vm.State == hypervisor.Stopped && vm.OutOfSync != "" && !c.provisioned:
		return hypervisortest.Sync(ctx, d, m, false)
	case vm.State == hypervisor.Stopped:
		return d.Start(ctx, m)
	}
	c.provisioned = true
	m.Spec.ProviderID = vm.ProviderID
	if vm.OutOfSync != "" || vm.UserData {
		return hypervisortest.Sync(ctx, d, m, true)
	}
	if d.(*driver).session.tags.NeedsRead(p.b.id(m)) {
		p.queue.AddAfter(key, pollInterval) // its tags are not known yet
		return nil
	}
	p.finish(key, c)
	return nil
}

// finish ends the work on a machine.
func (p *testController) finish(key hypervisor.Key, c *machineRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs[key] == c {
		delete(p.runs, key)
		c.endedAt = time.Now()
		close(c.done)
	}
}

// start starts the work on a machine: to create its VM, or to delete it if the
// machine is being deleted.
func (p *testController) start(m *vspherev1.NovaVSphereMachine, as ...func(*machineRun)) *machineRun {
	c := &machineRun{machine: m, options: createOptions, done: make(chan struct{}), startedAt: time.Now()}
	for _, change := range as {
		change(c)
	}
	p.mu.Lock()
	p.runs[hypervisor.KeyOf(m)] = c
	p.mu.Unlock()
	p.queue.Add(hypervisor.KeyOf(m))
	return c
}

// waitForAll waits until all machines have reached their target. It fails if
// none of them does for some time: the total time depends on the test machine.
func (p *testController) waitForAll(within time.Duration, runs ...*machineRun) {
	p.b.t.Helper()
	p.waitForRuns(within, runs, func(int) {})
}

// waitForRuns calls meanwhile with the number of machines in progress, until
// all have reached their target. It fails if none does within a time.
func (p *testController) waitForRuns(within time.Duration, runs []*machineRun, meanwhile func(left int)) {
	p.b.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	least, last := len(runs), time.Now()
	for ; ; <-tick.C {
		left := 0
		for _, c := range runs {
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
			p.b.t.Fatalf("none of %d of %d machines arrived within %s: %s", left, len(runs), within, p.unfinished(runs))
		}
	}
}

// unfinished describes the machines that have not reached their target.
func (p *testController) unfinished(runs []*machineRun) string {
	var out []string
	for _, c := range runs {
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
			c.machine.Name, vm, err, d.(*driver).session.creations.Position(hypervisor.KeyOf(c.machine)), c.provisioned, c.failures, p.queue.NumRequeues(hypervisor.KeyOf(c.machine))))
	}
	return strings.Join(out, "\n")
}

// machines returns machines called prefix-0 and so on.
func (b *bed) machines(prefix string, n int) []*vspherev1.NovaVSphereMachine {
	out := make([]*vspherev1.NovaVSphereMachine, n)
	for i := range out {
		out[i] = b.machine(fmt.Sprintf("%s-%d", prefix, i))
	}
	return out
}

// id returns the instance UUID of a machine's VM.
func (b *bed) id(m *vspherev1.NovaVSphereMachine) uuid.UUID {
	id, err := kit.MachineUUID(b.cluster.Annotations[infrav1.ClusterIDAnnotation], hypervisor.KeyOf(m))
	b.Expect(err).NotTo(HaveOccurred())
	return id
}

// reconcileAll checks that every machine has exactly one VM, and that no other
// VM has a derived UUID.
func (b *bed) reconcileAll(machines []*vspherev1.NovaVSphereMachine) {
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

// expectRequests logs the requests and the time of a phase.
func (b *bed) expectRequests(t *testing.T, what string, n int, since time.Time) {
	t.Helper()
	t.Logf("%s: %d requests for %d machines (%.2f each), %s: %v", what, b.total(), n,
		float64(b.total())/float64(n), time.Since(since).Round(10*time.Millisecond), b.vc.Requests())
}
