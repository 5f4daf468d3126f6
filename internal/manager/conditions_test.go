package manager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// series returns the values of a metric by condition.
func series(t *testing.T, from prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			found[strings.Join(labels, " ")] = m.GetGauge().GetValue()
		}
	}
	return found
}

func TestConditionMetrics(t *testing.T) {
	g := NewWithT(t)
	since := time.Unix(1_700_000_000, 0)
	cluster := clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue"},
		Status: clusterv1.ClusterStatus{Conditions: []metav1.Condition{
			{Type: "Available", Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)},
			{Type: "WorkersAvailable", Status: metav1.ConditionFalse},
			{Type: "RemoteConnectionProbe", Status: metav1.ConditionUnknown},
		}},
	}
	leads := make(chan struct{})
	var broken error
	registry := prometheus.NewPedanticRegistry()
	exported := &conditionMetrics{}
	exported.sources.Set("Cluster", conditionSource{
		elected: leads,
		list: func(context.Context) (client.ObjectList, error) {
			return &clusterv1.ClusterList{Items: []clusterv1.Cluster{cluster}}, broken
		},
	})
	g.Expect(registry.Register(exported)).To(Succeed())
	g.Expect(series(t, registry, "nova_condition")).To(BeEmpty(), "another manager leads")

	close(leads)
	of := func(condition string) string {
		return "condition=" + condition + " kind=Cluster name=blue namespace=team"
	}
	g.Expect(series(t, registry, "nova_condition")).To(Equal(map[string]float64{
		of("Available"): 1, of("WorkersAvailable"): 0, of("RemoteConnectionProbe"): -1,
	}))
	g.Expect(series(t, registry, "nova_condition_transition_timestamp_seconds")).To(HaveKeyWithValue(of("Available"), 1.7e9))

	broken = errors.New("the cache has stopped")
	g.Expect(series(t, registry, "nova_condition")).To(BeEmpty(), "and the scrape succeeds")
}
