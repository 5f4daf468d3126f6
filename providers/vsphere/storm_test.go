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

// bad chooses what becomes of requests: one in twenty fails, one in twenty
// hangs past its deadline, each before or after it was carried out.
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

// Two hundred machines in a storm: requests fail and hang, sessions are
// dropped at random, and vCenter restarts in the middle. All come up, and go
// again; none is lost, none doubled.
func TestStorm(t *testing.T) {
	const n = 200
	b := newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{
		Templates: []vcenter.Template{{Name: vcenter.DefaultTemplate, DiskGiB: 1}},
	}})
	b.options.pace = hasty
	b.options.MaxCreations = 16
	b.connector = b.newConnector()
	p := b.fly(b.connector)
	drop := rand.New(rand.NewPCG(7, 2))

	// through takes all machines somewhere while the storm rages.
	through := func(what string, crafts []*craft) {
		t.Helper()
		began := time.Now()
		b.vc.ResetRequests()
		b.vc.SetDisturbance(bad(42))
		restarted := false
		b.Eventually(func(g Gomega) {
			left := 0
			for _, c := range crafts {
				select {
				case <-c.done:
				default:
					left++
				}
			}
			if drop.IntN(100) == 0 {
				b.vc.ExpireSessions()
			}
			if !restarted && left < n/2 {
				restarted = true
				b.vc.Restart(100 * time.Millisecond)
			}
			g.Expect(left).To(BeZero())
		}, 4*time.Minute, 50*time.Millisecond).Should(Succeed())
		b.Expect(restarted).To(BeTrue())
		b.vc.SetDisturbance(nil)
		failures := 0
		for _, c := range crafts {
			failures += c.failures
			b.Expect(c.lost).To(BeFalse(), c.machine.Name)
		}
		b.spent(t, what, n, began)
		t.Logf("%s: %d failures were tried again", what, failures)
	}

	machines := b.machines("m", n)
	var up []*craft
	for _, m := range machines {
		up = append(up, p.take(m))
	}
	through("creation", up)
	b.once(machines)
	for _, m := range machines {
		b.reaches(m, hypervisor.Running)
	}

	var away []*craft
	for _, m := range machines {
		away = append(away, p.take(going(m)))
	}
	through("deletion", away)
	b.once([]*infrav1.NovaVSphereMachine{})
}
