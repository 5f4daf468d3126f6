package measured

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Value returns the value of the first series of a metric that has the labels,
// which are names and values in turn; for a histogram, its number of samples.
// It is zero if there is no such series.
func Value(name string, labels ...string) (float64, error) {
	gatherer, ok := metrics.Registry.(prometheus.Gatherer)
	if !ok {
		return 0, fmt.Errorf("the registry %T cannot be read", metrics.Registry)
	}
	families, err := gatherer.Gather()
	if err != nil {
		return 0, fmt.Errorf("reading metrics: %w", err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && has(m, labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()), nil
			}
		}
	}
	return 0, nil
}

func has(m *dto.Metric, labels []string) bool {
	values := map[string]string{}
	for _, l := range m.GetLabel() {
		values[l.GetName()] = l.GetValue()
	}
	for i := 0; i+1 < len(labels); i += 2 {
		if values[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}
