package main

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// The waits of all queues count, and nothing else that managers export.
func TestQueueWait(t *testing.T) {
	g := NewWithT(t)
	before, err := parseWaits([]byte("# TYPE other gauge\nother 3\n"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(before.mean()).To(BeZero())
	after, err := parseWaits([]byte(`# TYPE workqueue_queue_duration_seconds histogram
workqueue_queue_duration_seconds_bucket{name="a",le="+Inf"} 3
workqueue_queue_duration_seconds_sum{name="a"} 0.5
workqueue_queue_duration_seconds_count{name="a"} 3
workqueue_queue_duration_seconds_bucket{name="b",le="+Inf"} 1
workqueue_queue_duration_seconds_sum{name="b"} 1.5
workqueue_queue_duration_seconds_count{name="b"} 1
`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after.since(before).mean()).To(Equal(500 * time.Millisecond))
	g.Expect(after.since(after).mean()).To(BeZero())
	_, err = parseWaits([]byte("{"))
	g.Expect(err).To(HaveOccurred())
}

func TestMedian(t *testing.T) {
	g := NewWithT(t)
	runs := func(waits ...time.Duration) (all []holesRun) {
		for _, wait := range waits {
			all = append(all, holesRun{waited: wait})
		}
		return all
	}
	wait := func(r holesRun) float64 { return r.waited.Seconds() }
	g.Expect(median(runs(3*time.Second, time.Second, 8*time.Second), wait)).To(BeEquivalentTo(3))
	g.Expect(median(runs(4*time.Second, time.Second), wait)).To(BeEquivalentTo(2.5))
}
