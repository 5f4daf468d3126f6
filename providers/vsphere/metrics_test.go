package vsphere

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/test/measured"
)

// metric returns the value of a metric of the test environment's vCenter.
// Only the first servers of a process have their own series; for later ones the
// value includes those of all others.
func (b *bed) metric(name string, labels ...string) float64 {
	b.t.Helper()
	value, err := measured.Value(name, append(labels, "server", sessions.Label(b.vc.Address))...)
	b.Expect(err).NotTo(HaveOccurred())
	return value
}

func TestMetrics(t *testing.T) {
	b := newBed(t)
	b.options.MaxCreations = 1
	b.connector = b.newConnector()
	b.vc.SetTaskDelay("CloneVM_Task", 5*time.Second) // all that is checked while it runs takes less on a busy machine
	m, next := b.machine("m"), b.machine("next")
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.Expect(hypervisor.IsWaiting(b.connect(next).Create(b.ctx(), next, createOptions))).To(BeTrue())
	b.Expect(b.metric("nova_hypervisor_tasks", "action", "create")).To(Equal(1.0))
	b.Expect(b.metric("nova_creations", "state", "InFlight")).To(Equal(1.0))
	b.Expect(b.metric("nova_creations", "state", "Queued")).To(Equal(1.0))
	b.Expect(b.metric("nova_hypervisor_sessions", "state", "Up")).To(Equal(1.0))
	b.Expect(b.metric("nova_hypervisor_requests_total", "method", "CloneVM_Task")).To(Equal(1.0))
	b.Expect(b.metric("nova_hypervisor_request_seconds", "method", "CloneVM_Task")).To(Equal(1.0))
	b.Expect(b.metric("nova_hypervisor_stream_age_seconds", "provider", "vsphere")).To(And(BeNumerically(">", 0), BeNumerically("<", 60)))

	b.waitForState(m, hypervisor.Running)
	b.Expect(b.metric("nova_hypervisor_tasks", "action", "create")).To(BeZero())
	b.Expect(b.metric("nova_creations", "state", "InFlight")).To(BeZero())
	b.connector.Close()
	b.Expect(b.metric("nova_hypervisor_sessions", "state", "Up")).To(BeZero())
	b.Expect(b.metric("nova_hypervisor_stream_age_seconds", "provider", "vsphere")).To(BeZero(), "no session, no age")
}
