package vsphere

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

var live = &gauges{sessions: map[*session]struct{}{}}

func init() { metrics.Registry.MustRegister(live) }

// gauges are the metrics that are read from the sessions at each scrape.
type gauges struct {
	mu       sync.Mutex
	sessions map[*session]struct{}
}

func (g *gauges) add(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sessions[s] = struct{}{}
}

func (g *gauges) remove(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s)
}

// Describe sends the descriptions of the metrics.
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	to <- sessions.StreamAge
	to <- sessions.Tasks
}

// Collect reads the metrics of all sessions.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	ages, counts := map[string]time.Duration{}, map[[2]string]int{}
	g.mu.Lock()
	for s := range g.sessions {
		server := sessions.Label(s.Server())
		if age, ok := s.Age(); ok {
			ages[server] = max(ages[server], age)
		}
		for v, n := range s.inv.ActiveActions() {
			counts[[2]string{server, string(v)}] += n
		}
	}
	g.mu.Unlock()
	for server, age := range ages {
		to <- prometheus.MustNewConstMetric(sessions.StreamAge, prometheus.GaugeValue, age.Seconds(), vcenter.ProviderName, server)
	}
	for at, n := range counts {
		to <- prometheus.MustNewConstMetric(sessions.Tasks, prometheus.GaugeValue, float64(n), vcenter.ProviderName, at[0], at[1])
	}
}
