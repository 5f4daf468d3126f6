package vsphere

import (
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// disturbances chooses the faults of requests: one in twenty fails, and one in
// twenty hangs until it times out, each before or after vCenter has executed
// it.
func disturbances(seed uint64) func(string) vcenter.Disturbance {
	random := rand.New(rand.NewPCG(seed, 1))
	fails := []vcenter.Disturbance{vcenter.Refused, vcenter.Failed, vcenter.AnswerLost}
	hangs := []vcenter.Disturbance{vcenter.Hanging, vcenter.AnswerStuck}
	return func(string) vcenter.Disturbance {
		switch n := random.IntN(100); {
		case n < 5:
			return fails[random.IntN(len(fails))]
		case n < 10:
			return hangs[random.IntN(len(hangs))]
		default:
			return vcenter.Undisturbed
		}
	}
}

// faultRate is the number of machines in a storm.
const faultRate = 200

// unreliableVCenter is a vCenter with a pilot, which reconciles machines during
// faults.
type unreliableVCenter struct {
	*bed
	controller *testController
	random     *rand.Rand
}

func newUnreliableVCenter(t *testing.T) *unreliableVCenter {
	t.Helper()
	b := newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{
		Templates: []vcenter.Template{{Name: vcenter.DefaultTemplate, DiskGiB: 1}},
	}})
	b.options.timeouts = shortTimeouts
	b.options.timeouts.Request = time.Second // other tests may use the processors
	b.options.MaxCreations = 16
	b.connector = b.newConnector()
	return &unreliableVCenter{bed: b, controller: b.startController(b.connector), random: rand.New(rand.NewPCG(7, 2))}
}

// startAll starts the work on machines, all at once.
func (s *unreliableVCenter) startAll(machines []*vspherev1.NovaVSphereMachine) (runs []*machineRun) {
	for _, m := range machines {
		runs = append(runs, s.controller.start(m))
	}
	return runs
}

// faultDuration is the longest duration of a storm, and the longest time in
// which no machine reaches its target. On a test machine under load, a slow
// request may look like a request that hangs; machines that are not done by
// then must be done without faults after the storm.
const faultDuration = 2 * time.Minute

// run makes requests fail and hang until all machines have reached their
// target. Meanwhile sessions are dropped at random, and vCenter restarts in
// the middle.
func (s *unreliableVCenter) run(what string, machines []*vspherev1.NovaVSphereMachine) {
	s.t.Helper()
	began := time.Now()
	s.vc.ResetRequests()
	s.vc.SetDisturbance(disturbances(42))
	runs := s.startAll(machines)
	restarted, calm := false, false
	s.controller.waitForRuns(2*faultDuration, runs, func(left int) {
		over := time.Since(began) > faultDuration
		if !calm && s.random.IntN(300) == 0 { // about every 15 seconds
			s.vc.ExpireSessions()
		}
		if !restarted && (over || left < len(runs)/2) {
			restarted = true
			s.vc.Restart(100 * time.Millisecond)
		}
		if over && !calm {
			calm = true
			s.vc.SetDisturbance(nil)
		}
	})
	s.Expect(restarted).To(BeTrue())
	s.vc.SetDisturbance(nil)
	failures := 0
	for _, c := range runs {
		failures += c.failures
		s.Expect(c.lost).To(BeFalse(), c.machine.Name)
	}
	s.expectRequests(s.t, what, len(runs), began)
	s.t.Logf("%s: %d failures were tried again", what, failures)
}

// deletingMachines returns the machines marked as being deleted.
func deletingMachines(machines []*vspherev1.NovaVSphereMachine) (away []*vspherev1.NovaVSphereMachine) {
	for _, m := range machines {
		away = append(away, markDeleting(m))
	}
	return away
}

// Two hundred machines are created in a storm; none is lost, none has two VMs,
// and all can be deleted.
func TestCreationsOnUnreliableVCenter(t *testing.T) {
	t.Parallel()
	s := newUnreliableVCenter(t)
	machines := s.machines("m", faultRate)
	s.run("creation", machines)
	s.reconcileAll(machines)
	for _, m := range machines {
		s.waitForState(m, hypervisor.Running)
	}
	s.controller.waitForAll(faultDuration, s.startAll(deletingMachines(machines))...)
	s.reconcileAll(nil)
}

// Two hundred machines are deleted in a storm; no VM is left.
func TestDeletionsOnUnreliableVCenter(t *testing.T) {
	t.Parallel()
	s := newUnreliableVCenter(t)
	machines := s.machines("m", faultRate)
	s.controller.waitForAll(faultDuration, s.startAll(machines)...)
	s.run("deletion", deletingMachines(machines))
	s.reconcileAll(nil)
}
