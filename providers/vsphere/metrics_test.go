package vsphere

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// metric returns the value of a metric of the test environment's vCenter
// with a label; for a histogram, its number of samples.
func (b *bed) metric(name, label, value string) float64 {
	b.t.Helper()
	families, err := metrics.Registry.(prometheus.Gatherer).Gather()
	b.Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetName() == name && labels["server"] == b.vc.Address && labels[label] == value {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

func TestMetrics(t *testing.T) {
	b := newBed(t)
	b.options.MaxCreations = 1
	b.connector = b.newConnector()
	b.vc.SetTaskDelay("CloneVM_Task", time.Second)
	m, next := b.machine("m"), b.machine("next")
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.Expect(hypervisor.IsWaiting(b.connect(next).Create(b.ctx(), next, createOptions))).To(BeTrue())
	b.Expect(b.metric("nova_vsphere_tasks", "action", "create")).To(Equal(1.0))
	b.Expect(b.metric("nova_creations", "state", "InFlight")).To(Equal(1.0))
	b.Expect(b.metric("nova_creations", "state", "Queued")).To(Equal(1.0))
	b.Expect(b.metric("nova_vsphere_sessions", "state", "Up")).To(Equal(1.0))
	b.Expect(b.metric("nova_vsphere_requests_total", "method", "CloneVM_Task")).To(Equal(1.0))
	b.Expect(b.metric("nova_vsphere_request_seconds", "method", "CloneVM_Task")).To(Equal(1.0))
	b.Expect(b.metric("nova_vsphere_stream_age_seconds", "server", b.vc.Address)).To(And(BeNumerically(">", 0), BeNumerically("<", 60)))

	b.waitForState(m, hypervisor.Running)
	b.Expect(b.metric("nova_vsphere_tasks", "action", "create")).To(BeZero())
	b.Expect(b.metric("nova_creations", "state", "InFlight")).To(BeZero())
	b.connector.Close()
	b.Expect(b.metric("nova_vsphere_sessions", "state", "Up")).To(BeZero())
	b.Expect(b.metric("nova_vsphere_stream_age_seconds", "server", b.vc.Address)).To(BeZero(), "no session, no age")
}
