package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// queueWait is how long objects waited in the work queues of managers until a
// worker was free. It grows if clusters that hang occupy the workers, also where
// the time that a fleet takes is that of the machine.
type queueWait struct {
	seconds float64
	objects uint64
}

// mean is the mean wait of one object.
func (w queueWait) mean() time.Duration {
	if w.objects == 0 {
		return 0
	}
	return time.Duration(w.seconds / float64(w.objects) * float64(time.Second)).Round(time.Microsecond)
}

func (w queueWait) since(before queueWait) queueWait {
	return queueWait{w.seconds - before.seconds, w.objects - before.objects}
}

// waits returns the waits in all work queues of managers since they started.
func waits(ctx context.Context, b *bed.Bed, managers []string) (queueWait, error) {
	var all queueWait
	for _, name := range managers {
		text, err := b.Metrics(ctx, name)
		if err != nil {
			return all, err
		}
		one, err := parseWaits(text)
		if err != nil {
			return all, fmt.Errorf("reading metrics of %s: %w", name, err)
		}
		all.seconds += one.seconds
		all.objects += one.objects
	}
	return all, nil
}

// parseWaits reads the waits in all work queues from the metrics of a manager.
func parseWaits(metrics []byte) (queueWait, error) {
	var all queueWait
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	if err != nil {
		return all, err
	}
	for _, metric := range families["workqueue_queue_duration_seconds"].GetMetric() {
		all.seconds += metric.GetHistogram().GetSampleSum()
		all.objects += metric.GetHistogram().GetSampleCount()
	}
	return all, nil
}
