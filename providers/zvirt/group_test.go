package zvirt

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// While the engine executes one machine's change of an affinity group, other
// machines are queued: each of their reconciles returns and does not wait.
func TestGroupChangesDoNotBlockWorkers(t *testing.T) {
	b := newBed(t)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	block := func(method, path string) {
		if method == "POST" && strings.Contains(path, "affinitygroups") {
			b.onRequest.Store(nil)
			entered <- struct{}{}
			<-release
		}
	}
	b.onRequest.Store(&block)
	first, second := b.machine("worker-1"), b.machine("worker-2")
	done := make(chan error, 1)
	go func() {
		for {
			_, did, err := b.reconcile(b.connector, first, true)
			if did == "rest" || err != nil && !hypervisor.IsTransient(err) && !hypervisor.IsWaiting(err) {
				done <- err
				return
			}
		}
	}()
	b.Eventually(entered).Should(Receive())
	b.Eventually(func() error { _, _, err := b.reconcile(b.connector, second, true); return err }).Should(SatisfyAll(
		MatchError(ContainSubstring("the engine accepts one change at a time")),
		HaveField("Reason", infrav1.RequestQueuedReason), HaveField("Waiting", true)))
	b.Consistently(done).ShouldNot(Receive())
	close(release)
	b.Eventually(done).Should(Receive(BeNil()))
	b.Eventually(b.connector.Changes()).Should(Receive(Equal(hypervisor.KeyOf(second))), "the key of a queued machine is delivered")
	b.reconcileUntil(b.connector, second, true, "rest")
}
