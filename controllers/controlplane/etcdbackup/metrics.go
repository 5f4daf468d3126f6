package etcdbackup

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nova-platform/cluster-api-provider-nova/internal/snapshots"
)

var labels = []string{"namespace", "control_plane"}

var (
	lastSnapshotTime = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_etcd_snapshot_last_timestamp_seconds",
		Help: "Unix time at which the newest etcd snapshot in the bucket was started; its age is time() minus this value.",
	}, labels)
	lastSnapshotSize = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_etcd_snapshot_last_size_bytes",
		Help: "Size of the newest etcd snapshot in the bucket.",
	}, labels)
	lastSnapshotDuration = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_etcd_snapshot_last_duration_seconds",
		Help: "Time that it took to create the newest etcd snapshot in the bucket.",
	}, labels)
	nextSnapshotTime = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_etcd_snapshot_next_timestamp_seconds",
		Help: "Unix time of the next etcd snapshot by the schedule. A time in the past means that a snapshot was missed.",
	}, labels)
	snapshotsKept = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_etcd_snapshots",
		Help: "Number of etcd snapshots in the bucket.",
	}, labels)
	snapshotsTaken = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_etcd_snapshots_taken_total",
		Help: "Attempts to create an etcd snapshot, by result.",
	}, append([]string{"result"}, labels...))
)

func init() {
	metrics.Registry.MustRegister(lastSnapshotTime, nextSnapshotTime, lastSnapshotSize, lastSnapshotDuration, snapshotsKept, snapshotsTaken)
}

// measure sets the metrics of the newest snapshot.
func measure(of client.ObjectKey, newest snapshots.Snapshot, kept int) {
	snapshotsKept.WithLabelValues(of.Namespace, of.Name).Set(float64(kept))
	if newest.Name == "" {
		return
	}
	lastSnapshotTime.WithLabelValues(of.Namespace, of.Name).Set(float64(newest.Time.Unix()))
	lastSnapshotSize.WithLabelValues(of.Namespace, of.Name).Set(float64(newest.Size))
	lastSnapshotDuration.WithLabelValues(of.Namespace, of.Name).Set(newest.Duration.Round(time.Millisecond).Seconds())
}

// schedule sets the metric of the next due snapshot. While the schedule is
// suspended there is none.
func schedule(of client.ObjectKey, next time.Time) {
	if next.IsZero() {
		nextSnapshotTime.DeleteLabelValues(of.Namespace, of.Name)
		return
	}
	nextSnapshotTime.WithLabelValues(of.Namespace, of.Name).Set(float64(next.Unix()))
}

// forget deletes the metrics of a control plane without snapshots.
func forget(of client.ObjectKey) {
	match := prometheus.Labels{"namespace": of.Namespace, "control_plane": of.Name}
	for _, gauge := range []*prometheus.GaugeVec{lastSnapshotTime, nextSnapshotTime, lastSnapshotSize, lastSnapshotDuration, snapshotsKept} {
		gauge.DeletePartialMatch(match)
	}
	snapshotsTaken.DeletePartialMatch(match)
}
