package hypervisor

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// step is the action of one reconcile.
type step string

// Steps of a reconcile. Up and Deleted end the work on a machine.
const (
	stepWait     step = "wait"
	stepCreate   step = "create"
	stepStart    step = "start"
	stepSync     step = "sync"
	stepShutdown step = "shutdown"
	stepDelete   step = "delete"
	stepMissing  step = "missing"
	stepUp       step = "up"
	stepDeleted  step = "deleted"
)

// observe connects and observes a machine. It returns the failure of the last
// action as an error.
func (e *environment[M, C]) observe(m M) (hypervisor.VM, error) {
	_, vm, err := e.look(e.connector, m)
	return vm, err
}

// look is the only caller of Observe. It returns the failure of an action once,
// as an error.
func (e *environment[M, C]) look(c Connector[M, C], m M) (hypervisor.Driver[M], hypervisor.VM, error) {
	d, err := c.Connect(e.ctx(), m)
	if err != nil {
		return nil, hypervisor.VM{}, e.record(err)
	}
	vm, err := d.Observe(e.ctx(), m)
	e.texts.add(vm.Message + " " + vm.OutOfSync)
	if err == nil {
		if last, _ := e.reported.Swap(m.GetName(), vm.LastFailure); vm.LastFailure != nil && last != vm.LastFailure { //nolint:errorlint // the same value
			err = vm.LastFailure
		}
	}
	return d, vm, e.record(err)
}

// sync syncs the next part of a VM.
func (e *environment[M, C]) sync(d hypervisor.Driver[M], m M, joined bool) error {
	return e.record(Sync(e.ctx(), d, m, joined))
}

// Sync syncs the next part of a VM, as controllers/machine does.
func Sync[M any](ctx context.Context, d hypervisor.Driver[M], m M, joined bool) error {
	vm, err := d.Observe(ctx, m)
	if err != nil {
		return err
	}
	for _, s := range d.Syncers() {
		if s.Pending(&vm) && (joined && vm.State == hypervisor.Running || !s.AfterJoin) {
			return s.Apply(ctx, m)
		}
	}
	return nil
}

// record records an error for the search for secrets.
func (e *environment[M, C]) record(err error) error {
	if err != nil {
		e.texts.add(err.Error())
	}
	return err
}

// driver returns the driver of a machine.
func (e *environment[M, C]) driver(m M) hypervisor.Driver[M] {
	e.t.Helper()
	var d hypervisor.Driver[M]
	e.Eventually(func() (err error) {
		d, err = e.connector.Connect(e.ctx(), m)
		if err != nil && !hypervisor.IsWaiting(err) && !hypervisor.IsTransient(err) {
			return gomega.StopTrying("connecting").Wrap(err)
		}
		return err
	}).Should(gomega.Succeed())
	return d
}

// create calls Create.
func (e *environment[M, C]) create(m M) error {
	e.t.Helper()
	return e.record(e.driver(m).Create(e.ctx(), m, createOptions))
}

// reconcile takes one step as controllers/machine does. It sets the provider
// ID when the guest has reported addresses.
func (e *environment[M, C]) reconcile(c Connector[M, C], m M, joined bool) (hypervisor.VM, step, error) {
	d, vm, err := e.look(c, m)
	if err != nil {
		return vm, "", err
	}
	if !m.GetDeletionTimestamp().IsZero() {
		did, err := e.remove(d, m, vm)
		return vm, did, e.record(err)
	}
	spec, _ := m.Common()
	provisioned := spec.ProviderID != ""
	switch {
	case vm.State == hypervisor.Busy:
		return vm, stepWait, nil
	case vm.State == hypervisor.Absent && provisioned:
		return vm, stepMissing, nil
	case vm.State == hypervisor.Absent:
		return vm, stepCreate, e.record(d.Create(e.ctx(), m, createOptions))
	case vm.State == hypervisor.Stopped && vm.OutOfSync != "" && !provisioned:
		return vm, stepSync, e.sync(d, m, joined)
	case vm.State == hypervisor.Stopped:
		return vm, stepStart, e.record(d.Start(e.ctx(), m))
	case len(vm.Addresses) == 0:
		e.boot(vm.ID)
		return vm, stepWait, nil
	}
	spec.ProviderID = vm.ProviderID
	if vm.OutOfSync != "" || joined && vm.UserData {
		return vm, stepSync, e.sync(d, m, joined)
	}
	return vm, stepUp, nil
}

// remove takes one step of a machine that is being deleted.
func (e *environment[M, C]) remove(d hypervisor.Driver[M], m M, vm hypervisor.VM) (step, error) {
	spec, _ := m.Common()
	switch {
	case vm.State == hypervisor.Absent:
		return stepDeleted, nil
	case vm.State == hypervisor.Busy:
		return stepWait, nil
	case vm.State == hypervisor.Running && spec.PowerOff.Mode == infrav1.PowerOffSoftThenHard &&
		time.Since(m.GetDeletionTimestamp().Time) < spec.PowerOff.Timeout():
		err := d.Shutdown(e.ctx(), m)
		if hypervisor.ReasonFor(err, "") == infrav1.GuestUnreachableReason {
			return stepDelete, d.Delete(e.ctx(), m)
		}
		return stepShutdown, err
	}
	return stepDelete, d.Delete(e.ctx(), m)
}

// boot makes the guest of a VM report an address.
func (e *environment[M, C]) boot(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.noAddresses {
		return
	}
	address, known := e.guests[id]
	if !known {
		address = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(len(e.guests) / 200), byte(len(e.guests)%200 + 10)}), 16)
		e.guests[id] = address
	}
	e.sim.SetAddresses(id, address)
}

// until reconciles a machine until a step is done. It repeats failed steps.
func (e *environment[M, C]) until(m M, done step) hypervisor.VM {
	e.t.Helper()
	return e.untilOf(e.connector, m, true, done)
}

func (e *environment[M, C]) untilOf(c Connector[M, C], m M, joined bool, done step) hypervisor.VM {
	e.t.Helper()
	var vm hypervisor.VM
	e.Eventually(func() string {
		var did step
		var err error
		if vm, did, err = e.reconcile(c, m, joined); err != nil {
			return err.Error()
		}
		return string(did)
	}).Should(gomega.Equal(string(done)), m.GetName())
	return vm
}

// up creates the VM of a new machine, whose node joins.
func (e *environment[M, C]) up(name string, fields ...Fields) M {
	e.t.Helper()
	m := e.machine(name, fields...)
	e.until(m, stepUp)
	return m
}

// gone deletes a machine and expects that no VM with its name is left.
func (e *environment[M, C]) gone(m M) {
	e.t.Helper()
	e.until(deleting(m), stepDeleted)
	e.Expect(e.named(m.GetName())).To(gomega.BeEmpty())
}

// fails reconciles a machine until a step fails with a reason.
func (e *environment[M, C]) fails(m M, reason string) error {
	e.t.Helper()
	var err error
	e.Eventually(func() string {
		_, _, err = e.reconcile(e.connector, m, true)
		return hypervisor.ReasonFor(err, fmt.Sprint(err))
	}).Should(gomega.Equal(reason))
	return err
}

// becomes observes a machine until its VM has a state. No call may fail.
func (e *environment[M, C]) becomes(m M, state hypervisor.State) hypervisor.VM {
	e.t.Helper()
	var vm hypervisor.VM
	e.Eventually(func(g gomega.Gomega) {
		var err error
		vm, err = e.observe(m)
		if err != nil && !hypervisor.IsTransient(err) {
			gomega.StopTrying("observing").Wrap(err).Now()
		}
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(vm.State).To(gomega.Equal(state))
	}).Should(gomega.Succeed())
	return vm
}

// delivered waits until the key of a machine is delivered.
func (e *environment[M, C]) delivered(keys <-chan hypervisor.Key, name string) {
	e.t.Helper()
	e.Eventually(keys, noticed).Should(gomega.Receive(gomega.Equal(hypervisor.Key{Namespace: namespace, Name: name})))
}

// drain reads the delivered keys until none comes for a short time.
func drain(keys <-chan hypervisor.Key) {
	for {
		select {
		case <-keys:
		case <-time.After(200 * time.Millisecond):
			return
		}
	}
}

// controller reconciles machines after events and failures only, with several
// workers. A change that a driver does not deliver leaves a machine unfinished.
type controller[M Machine, C Cluster] struct {
	e         *environment[M, C]
	connector Connector[M, C]
	queue     workqueue.TypedRateLimitingInterface[hypervisor.Key]
	stop      context.CancelFunc
	wg        sync.WaitGroup

	mu   sync.Mutex
	left map[hypervisor.Key]M
	// failures is the number of errors that are not waiting.
	failures int
	// missing is a machine whose VM was up and does not exist any more.
	missing error
}

// controlled reconciles machines until all are up, or deleted if they are
// being deleted, and returns the number of failures. It returns early when
// crashed is closed.
func (e *environment[M, C]) controlled(c Connector[M, C], crashed <-chan struct{}, machines ...M) (int, error) {
	ctx, cancel := context.WithCancel(e.ctx())
	p := &controller[M, C]{
		e: e, connector: c, stop: cancel, left: map[hypervisor.Key]M{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[hypervisor.Key](10*time.Millisecond, 500*time.Millisecond)),
	}
	for _, m := range machines {
		p.left[hypervisor.KeyOf(m)] = m
		p.queue.Add(hypervisor.KeyOf(m))
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
		p.wg.Go(p.work)
	}
	defer p.wg.Wait()
	defer p.queue.ShutDown()
	defer cancel()
	return p.wait(crashed)
}

// wait waits until no machine is left. It fails if no machine is finished for
// some time: the total time depends on the processors.
func (p *controller[M, C]) wait(crashed <-chan struct{}) (int, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	least, last := -1, time.Now()
	for {
		p.mu.Lock()
		left, failures, missing := len(p.left), p.failures, p.missing
		p.mu.Unlock()
		if left == 0 {
			return failures, missing
		}
		if left != least {
			least, last = left, time.Now()
		}
		if time.Since(last) > 2*timeout {
			return failures, fmt.Errorf("no machine was finished within %s: %s", 2*timeout, p.unfinished())
		}
		select {
		case <-crashed:
			return failures, nil
		case <-tick.C:
		}
	}
}

func (p *controller[M, C]) work() {
	for {
		key, down := p.queue.Get()
		if down {
			return
		}
		p.mu.Lock()
		m, known := p.left[key]
		p.mu.Unlock()
		if known {
			p.handle(key, m)
		}
		p.queue.Done(key)
	}
}

// handle reconciles a machine once.
func (p *controller[M, C]) handle(key hypervisor.Key, m M) {
	_, did, err := p.e.reconcile(p.connector, m, true)
	switch {
	case hypervisor.IsWaiting(err):
	case err != nil:
		p.mu.Lock()
		p.failures++
		p.mu.Unlock()
		p.queue.AddRateLimited(key)
	case did == stepUp, did == stepDeleted, did == stepMissing:
		p.mu.Lock()
		delete(p.left, key)
		if did == stepMissing {
			p.missing = fmt.Errorf("the VM of %s is reported as missing", key.Name)
		}
		p.mu.Unlock()
	default:
		p.queue.Forget(key)
	}
}

// unfinished describes the machines that are left.
func (p *controller[M, C]) unfinished() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := strings.Builder{}
	for key, m := range p.left {
		_, vm, err := p.e.look(p.connector, m)
		fmt.Fprintf(&text, "\n%s: %+v, %v", key.Name, vm, err)
	}
	return text.String()
}
