package vsphere

import (
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// bad chooses the faults of requests: one in twenty fails, and one in twenty
// hangs until it times out, each before or after vCenter has executed it.
func bad(seed uint64) func(string) vcenter.Disturbance {
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

// stormy is the number of machines in a storm.
const stormy = 200

// storm is a vCenter with a pilot, which reconciles machines during faults.
type storm struct {
	*bed
	pilot *pilot
	drop  *rand.Rand
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	b := newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{
		Templates: []vcenter.Template{{Name: vcenter.DefaultTemplate, DiskGiB: 1}},
	}})
	b.options.timeouts = shortTimeouts
	b.options.timeouts.request = time.Second // other tests may use the processors
	b.options.MaxCreations = 16
	b.connector = b.newConnector()
	return &storm{bed: b, pilot: b.fly(b.connector), drop: rand.New(rand.NewPCG(7, 2))}
}

// take starts the work on machines, all at once.
func (s *storm) take(machines []*infrav1.NovaVSphereMachine) (crafts []*craft) {
	for _, m := range machines {
		crafts = append(crafts, s.pilot.take(m))
	}
	return crafts
}

// spell is the longest duration of a storm, and the longest time in which no
// machine reaches its target. On a test machine under load, a slow request may
// look like a request that hangs; machines that are not done by then must be
// done without faults after the storm.
const spell = 2 * time.Minute

// rage makes requests fail and hang until all machines have reached their
// target. Meanwhile sessions are dropped at random, and vCenter restarts in
// the middle.
func (s *storm) rage(what string, machines []*infrav1.NovaVSphereMachine) {
	s.t.Helper()
	began := time.Now()
	s.vc.ResetRequests()
	s.vc.SetDisturbance(bad(42))
	crafts := s.take(machines)
	restarted, calm := false, false
	s.pilot.await(2*spell, crafts, func(left int) {
		over := time.Since(began) > spell
		if !calm && s.drop.IntN(300) == 0 { // about every 15 seconds
			s.vc.ExpireSessions()
		}
		if !restarted && (over || left < len(crafts)/2) {
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
	for _, c := range crafts {
		failures += c.failures
		s.Expect(c.lost).To(BeFalse(), c.machine.Name)
	}
	s.spent(s.t, what, len(crafts), began)
	s.t.Logf("%s: %d failures were tried again", what, failures)
}

// leaving returns the machines marked as being deleted.
func leaving(machines []*infrav1.NovaVSphereMachine) (away []*infrav1.NovaVSphereMachine) {
	for _, m := range machines {
		away = append(away, markDeleting(m))
	}
	return away
}

// Two hundred machines are created in a storm; none is lost, none has two VMs,
// and all can be deleted.
func TestStormOfCreations(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	machines := s.machines("m", stormy)
	s.rage("creation", machines)
	s.once(machines)
	for _, m := range machines {
		s.reaches(m, hypervisor.Running)
	}
	s.pilot.arrived(spell, s.take(leaving(machines))...)
	s.once(nil)
}

// Two hundred machines are deleted in a storm; no VM is left.
func TestStormOfDeletions(t *testing.T) {
	t.Parallel()
	s := newStorm(t)
	machines := s.machines("m", stormy)
	s.pilot.arrived(spell, s.take(machines)...)
	s.rage("deletion", leaving(machines))
	s.once(nil)
}
