package manager

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// lookTimeout limits how long a scrape waits for the cache.
const lookTimeout = 5 * time.Second

var (
	conditionStatus = prometheus.NewDesc("nova_condition",
		"Status of the conditions of an object: 1 is True, 0 is False, -1 is Unknown.",
		[]string{"kind", "namespace", "name", "condition"}, nil)
	conditionSince = prometheus.NewDesc("nova_condition_transition_timestamp_seconds",
		"Unix time at which a condition changed to its current status.",
		[]string{"kind", "namespace", "name", "condition"}, nil)

	conditionCollector = &conditionMetrics{}
)

func init() { metrics.Registry.MustRegister(conditionCollector) }

// conditionMetrics exports the conditions of all objects of some kinds. They
// are read from the cache during a scrape: nothing is stored, so nothing has to
// be deleted.
type conditionMetrics struct {
	// sources are the sources by kind.
	sources reconcile.Memory[string, conditionSource]
}

// conditionSource lists the objects of a kind.
type conditionSource struct {
	list func(ctx context.Context) (client.ObjectList, error)
	// elected is closed once this manager is the leader. A second replica would
	// export each series twice.
	elected <-chan struct{}
}

// ExportConditions adds the conditions of all objects of a kind to the metrics.
// Use it for kinds with a few objects per cluster: every condition of every
// object is a series.
func ExportConditions(mgr ctrl.Manager, o *Options, list client.ObjectList) error {
	gvk, err := apiutil.GVKForObject(list, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("exporting conditions: %w", err)
	}
	var options []client.ListOption
	if o.WatchFilter != "" {
		options = append(options, client.MatchingLabels{clusterv1.WatchLabel: o.WatchFilter})
	}
	conditionCollector.sources.Set(strings.TrimSuffix(gvk.Kind, "List"), conditionSource{
		elected: mgr.Elected(),
		list: func(ctx context.Context) (client.ObjectList, error) {
			found, ok := list.DeepCopyObject().(client.ObjectList)
			if !ok {
				return nil, fmt.Errorf("listing %s: not a list", gvk.Kind)
			}
			return found, mgr.GetCache().List(ctx, found, options...)
		},
	})
	return nil
}

// Describe names the metrics.
func (c *conditionMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- conditionStatus
	to <- conditionSince
}

// Collect reads all objects.
func (c *conditionMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	for kind, source := range c.sources.All() {
		select {
		case <-source.elected:
		default:
			continue
		}
		list, err := source.list(ctx)
		if err != nil {
			// An error would fail the whole scrape.
			ctrl.Log.WithName("metrics").Info("Cannot read conditions", "kind", kind, "cause", err.Error())
			continue
		}
		// An object that cannot be read has no conditions.
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			exportConditions(to, kind, o)
			return nil
		})
	}
}

// exportConditions exports the conditions of one object.
func exportConditions(to chan<- prometheus.Metric, kind string, o runtime.Object) {
	object, ok := o.(interface {
		client.Object
		GetConditions() []metav1.Condition
	})
	if !ok {
		return
	}
	for _, c := range object.GetConditions() {
		labels := []string{kind, object.GetNamespace(), object.GetName(), c.Type}
		to <- prometheus.MustNewConstMetric(conditionStatus, prometheus.GaugeValue, valueOf(c.Status), labels...)
		to <- prometheus.MustNewConstMetric(conditionSince, prometheus.GaugeValue, float64(c.LastTransitionTime.Unix()), labels...)
	}
}

func valueOf(status metav1.ConditionStatus) float64 {
	switch status {
	case metav1.ConditionTrue:
		return 1
	case metav1.ConditionFalse:
		return 0
	case metav1.ConditionUnknown:
	}
	return -1
}
