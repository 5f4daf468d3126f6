package etcdbackup

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/snapshots"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// SnapshotReconciler takes snapshots of the etcd of NovaControlPlanes.
type SnapshotReconciler struct {
	// Client may read from a cache, but not Secrets and ConfigMaps.
	Client client.Client
	// WorkloadClusters connects to etcd.
	WorkloadClusters *WorkloadClusters
	// Recorder records events.
	Recorder events.EventRecorder
	// Fence keeps backups of another management cluster from being changed.
	Fence fence.Fence
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter
	// that control planes must have. If not set, all control planes are
	// reconciled.
	WatchFilterValue string
	// Now returns the time. If not set, it is time.Now.
	Now func() time.Time

	locks namespaceLocks
	idle  reconcile.Memory[client.ObjectKey, idlePeriod]
}

// idlePeriod is the time until which no snapshot is due for an unchanged
// control plane, so that other changes of it cause no requests to the bucket.
type idlePeriod struct {
	generation int64
	until      time.Time
}

// SetupWithManager adds the controller to mgr.
func (r *SnapshotReconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	options.RateLimiter = reconcile.NewRateLimiter[ctrl.Request](timelimits.LongPoll, timelimits.LongGrace)
	options.ReconciliationTimeout = timelimits.Hourly
	err := ctrl.NewControllerManagedBy(mgr).
		Named("novacontrolplane-etcd-snapshots").
		For(&controlplanev1.NovaControlPlane{}, builder.WithPredicates(reconcile.IgnoreOwnStatus())).
		WithOptions(options).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up controller of snapshots: %w", err)
	}
	return nil
}

// snapshotScope is the state of one reconcile.
type snapshotScope struct {
	controlPlane *controlplanev1.NovaControlPlane
	cluster      *clusterv1.Cluster
	now          time.Time

	// all are the snapshots in the bucket, and newest is the manifest of the
	// last of them. listed is true once they were read.
	all    []snapshots.Snapshot
	newest snapshots.Snapshot
	listed bool
	// next is when the next snapshot is due.
	next time.Time
	// unsigned is true if the newest one is not signed with the cluster's key.
	unsigned bool
	// foreign is true if the data of etcd does not continue the newest
	// snapshot.
	foreign bool
	// served is true once a snapshot was taken after the request.
	served bool
	// stage is the reason of a failure.
	stage string
	// unchanged is true if the bucket was not read, so the status does not change.
	unchanged bool
}

func (s *snapshotScope) key() client.ObjectKey { return client.ObjectKeyFromObject(s.cluster) }

// requested reports whether a user requested a snapshot.
func (s *snapshotScope) requested() bool {
	_, requested := s.controlPlane.Annotations[controlplanev1.EtcdSnapshotAnnotation]
	return requested && !s.served
}

// Reconcile takes a snapshot of one control plane's etcd if it is due.
func (r *SnapshotReconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	s := &snapshotScope{controlPlane: &controlplanev1.NovaControlPlane{}, now: r.now()}
	if err := r.Client.Get(ctx, req.NamespacedName, s.controlPlane); err != nil {
		forget(req.NamespacedName)
		r.idle.Forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.Watched(s.controlPlane, r.WatchFilterValue) || !s.controlPlane.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, s.controlPlane.ObjectMeta)
	if err != nil || cluster == nil || annotations.IsPaused(cluster, s.controlPlane) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.Fence.Check(cluster, s.controlPlane) != nil {
		// The other management cluster takes and deletes snapshots.
		return ctrl.Result{RequeueAfter: timelimits.LongPoll}, nil
	}
	s.cluster = cluster
	helper, err := patch.NewHelper(s.controlPlane, r.Client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("preparing patch: %w", err)
	}
	before := ptr.Deref(conditions.Get(s.controlPlane, controlplanev1.EtcdSnapshotsHealthyCondition), metav1.Condition{})
	defer func() {
		s.report(reterr)
		r.recordFailure(s, before)
		err := helper.Patch(ctx, s.controlPlane, patch.WithOwnedConditions{Conditions: []string{controlplanev1.EtcdSnapshotsHealthyCondition}})
		reterr = errors.Join(reterr, err)
	}()
	if !s.controlPlane.Spec.Etcd.Snapshots.IsDefined() {
		forget(req.NamespacedName)
		r.idle.Forget(req.NamespacedName)
		if s.requested() {
			delete(s.controlPlane.Annotations, controlplanev1.EtcdSnapshotAnnotation)
			r.Recorder.Eventf(s.controlPlane, nil, corev1.EventTypeWarning, controlplanev1.EtcdSnapshotFailedEventReason, "TakeSnapshot",
				"No snapshot is taken: spec.etcd.snapshots is not set")
		}
		return ctrl.Result{}, nil
	}
	return r.step(ctx, s)
}

// recordFailure records an event for a new failure.
func (r *SnapshotReconciler) recordFailure(s *snapshotScope, before metav1.Condition) {
	is := conditions.Get(s.controlPlane, controlplanev1.EtcdSnapshotsHealthyCondition)
	if is == nil || is.Status != metav1.ConditionFalse || is.Reason == controlplanev1.EtcdSnapshotSuspendedReason ||
		is.Status == before.Status && is.Message == before.Message {
		return
	}
	r.Recorder.Eventf(s.controlPlane, nil, corev1.EventTypeWarning, controlplanev1.EtcdSnapshotFailedEventReason, "TakeSnapshot", "%s", is.Message)
}

// step lists the bucket, takes a snapshot if one is due and removes old ones.
func (r *SnapshotReconciler) step(ctx context.Context, s *snapshotScope) (ctrl.Result, error) {
	if !ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false) {
		return ctrl.Result{}, nil
	}
	restore, err := initlock.ObserveRestore(ctx, r.Client, s.cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if restore.Name != "" {
		// The data of etcd is about to be replaced.
		r.idle.Forget(client.ObjectKeyFromObject(s.controlPlane))
		return ctrl.Result{RequeueAfter: timelimits.Reconnect}, nil
	}
	if left := r.untilIdleEnds(s); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	done, ok := r.locks.tryLock(s.controlPlane.Namespace)
	if !ok {
		s.unchanged = true
		return ctrl.Result{RequeueAfter: timelimits.CallTimeout}, nil
	}
	defer done()
	r.idle.Forget(client.ObjectKeyFromObject(s.controlPlane))
	spec := &s.controlPlane.Spec.Etcd.Snapshots
	s.stage = controlplanev1.EtcdSnapshotStorageReason
	bucket, _, err := openBucket(ctx, r.Client, s.key(), &spec.S3, false)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer bucket.Close()
	if err := r.list(ctx, s, bucket); err != nil {
		return ctrl.Result{}, err
	}
	again, err := r.act(ctx, s, bucket)
	if err != nil || again == timelimits.Reconnect {
		return ctrl.Result{RequeueAfter: again}, err
	}
	return ctrl.Result{RequeueAfter: r.setIdle(s, again)}, nil
}

// act takes a snapshot if one is due, removes old ones, and returns the time
// until the next one is due.
func (r *SnapshotReconciler) act(ctx context.Context, s *snapshotScope, bucket *snapshots.Bucket) (time.Duration, error) {
	again, err := r.due(s)
	if err != nil {
		return 0, err
	}
	if s.unsigned && !s.requested() {
		// Its time and its history are not trustworthy.
		s.foreign = true
		return timelimits.Hourly, nil
	}
	if again == 0 {
		if s.newest.Name == "" && !s.requested() && !conditions.IsTrue(s.controlPlane, controlplanev1.EtcdClusterHealthyCondition) {
			// The first snapshot waits until the cluster is healthy.
			return timelimits.Reconnect, nil
		}
		s.stage = controlplanev1.EtcdSnapshotFailedReason
		if err := r.take(ctx, s, bucket); err != nil {
			return 0, err
		}
		if s.foreign {
			return timelimits.Hourly, nil
		}
		if again, err = r.due(s); err != nil {
			return 0, err
		}
	}
	if !s.controlPlane.Spec.Etcd.Snapshots.IsSuspended() {
		s.stage = controlplanev1.EtcdSnapshotStorageReason
		if err := r.expire(ctx, s, bucket); err != nil {
			return 0, err
		}
	}
	return again, nil
}

// setIdle remembers until when no snapshot is due, and returns when to list the
// bucket again.
func (r *SnapshotReconciler) setIdle(s *snapshotScope, again time.Duration) time.Duration {
	if again < 0 || again > timelimits.Hourly {
		again = timelimits.Hourly
	}
	r.idle.Set(client.ObjectKeyFromObject(s.controlPlane), idlePeriod{generation: s.controlPlane.Generation, until: r.now().Add(again)})
	return again
}

// untilIdleEnds returns how long no snapshot is due; 0 if the bucket has to be
// listed.
func (r *SnapshotReconciler) untilIdleEnds(s *snapshotScope) time.Duration {
	known, ok := r.idle.Get(client.ObjectKeyFromObject(s.controlPlane))
	if !ok || s.requested() || known.generation != s.controlPlane.Generation ||
		conditions.Get(s.controlPlane, controlplanev1.EtcdSnapshotsHealthyCondition) == nil {
		return 0
	}
	left := max(0, known.until.Sub(s.now))
	s.unchanged = left > 0
	return left
}

// list lists the bucket.
func (r *SnapshotReconciler) list(ctx context.Context, s *snapshotScope, bucket *snapshots.Bucket) error {
	all, err := bucket.List(ctx)
	if err != nil {
		return err
	}
	s.all, s.newest, s.listed = all, snapshots.Snapshot{}, true
	if len(all) == 0 {
		return nil
	}
	s.newest, err = bucket.Get(ctx, all[len(all)-1].Name)
	s.unsigned = err == nil && !s.newest.Authentic
	return err
}

// due returns the time until the next snapshot is due, 0 for now. It is
// negative while the schedule is suspended.
func (r *SnapshotReconciler) due(s *snapshotScope) (time.Duration, error) {
	spec := &s.controlPlane.Spec.Etcd.Snapshots
	next, err := snapshots.Next(spec.GetSchedule(), s.newest.Time)
	if err != nil {
		return 0, &settingError{problem: "spec.etcd.snapshots.schedule: " + err.Error()}
	}
	next = next.Add(snapshots.Jitter(spec.GetSchedule(), string(s.controlPlane.UID), next))
	s.next = next
	wait := max(0, next.Sub(r.now()))
	switch {
	case s.requested():
		wait = 0
	case spec.IsSuspended():
		s.next = time.Time{}
		return -1, nil
	}
	if wait == 0 && s.newest.Name == snapshots.Name(s.now) {
		// The names of snapshots differ by at least one second.
		return time.Second, nil
	}
	return wait, nil
}

// take takes a snapshot, unless the snapshots in the bucket belong to another
// etcd than the current one: a snapshot of an empty etcd would then be the
// newest, and the snapshots to restore would expire. A user who requests a
// snapshot has decided that the current data counts.
func (r *SnapshotReconciler) take(ctx context.Context, s *snapshotScope, bucket *snapshots.Bucket) (reterr error) {
	defer func() {
		if s.foreign {
			return
		}
		result := "ok"
		if reterr != nil {
			result = "error"
		}
		snapshotsTaken.WithLabelValues(result, s.controlPlane.Namespace, s.controlPlane.Name).Inc()
	}()
	from, err := r.snapshotSource(ctx, s)
	if err != nil {
		return err
	}
	s.foreign = !s.requested() && s.newest.Name != "" && !s.newest.Precedes(from.history, from.revision)
	if s.foreign {
		return nil
	}
	if err := bucket.Sweep(ctx, s.now.Add(-2*timelimits.Hourly)); err != nil {
		return err
	}
	about := snapshots.Snapshot{Member: from.member, History: from.history}
	taken, err := store(ctx, bucket, s.cluster, about, s.now, func(ctx context.Context, put func(context.Context, io.Reader) error) (etcd.Snapshot, error) {
		return etcd.TakeSnapshot(ctx, from.dial, from.credentials, from.member, put)
	})
	if err != nil {
		return err
	}
	r.Recorder.Eventf(s.controlPlane, nil, corev1.EventTypeNormal, "EtcdSnapshotTaken", "TakeSnapshot", "%s",
		fmt.Sprintf("Snapshot %s of etcd member %s is stored in the bucket: %d bytes, revision %d", taken.Name, taken.Member, taken.Size, taken.Revision))
	s.newest, s.unsigned = taken, false
	s.all = append(s.all, taken)
	return r.serve(ctx, s)
}

// serve removes the request for a snapshot after it was taken. A request that
// was made during the snapshot stays: changes before that request may be
// missing in the snapshot.
func (r *SnapshotReconciler) serve(ctx context.Context, s *snapshotScope) error {
	if !s.requested() {
		return nil
	}
	s.served = true
	path := "/metadata/annotations/" + strings.ReplaceAll(controlplanev1.EtcdSnapshotAnnotation, "/", "~1")
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": path, "value": s.controlPlane.Annotations[controlplanev1.EtcdSnapshotAnnotation]},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return fmt.Errorf("writing patch: %w", err)
	}
	err = r.Client.Patch(ctx, s.controlPlane.DeepCopy(), client.RawPatch(types.JSONPatchType, patch))
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing annotation %s: %w", controlplanev1.EtcdSnapshotAnnotation, err)
	}
	return nil
}

// snapshotSource is the source of a snapshot.
type snapshotSource struct {
	member      string
	dial        etcd.Dial
	credentials *tls.Config
	// history and revision identify the data of etcd.
	history  string
	revision int64
}

// snapshotSource finds the member to take a snapshot of, and the history and revision
// of its data.
func (r *SnapshotReconciler) snapshotSource(ctx context.Context, s *snapshotScope) (*snapshotSource, error) {
	nodes, err := r.nodes(ctx, s)
	if err != nil {
		return nil, err
	}
	from := &snapshotSource{}
	if from.dial, from.credentials, err = r.WorkloadClusters.Forwarded(ctx, s.key()); err != nil {
		return nil, err
	}
	health, err := etcd.Observe(ctx, from.dial, from.credentials, nodes)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Querying etcd for a snapshot failed", "error", err.Error())
		// The error of each member differs; the condition needs a stable
		// message.
		return nil, errors.New("no member of etcd answers through the API server")
	}
	member, ok := selectMember(health, nodes)
	if !ok {
		return nil, errors.New("no voting member of etcd answers through the API server")
	}
	from.member, from.revision = member, health.Revision
	if from.history, err = r.WorkloadClusters.history(ctx, s.key()); err != nil {
		ctrl.LoggerFrom(ctx).Info("Identifying etcd failed", "error", err.Error())
		return nil, errors.New("the API server does not return the namespace kube-system, which identifies the etcd")
	}
	return from, nil
}

// store uploads a snapshot and then commits its manifest.
func store(ctx context.Context, bucket *snapshots.Bucket, cluster *clusterv1.Cluster, about snapshots.Snapshot, begun time.Time,
	take func(context.Context, func(context.Context, io.Reader) error) (etcd.Snapshot, error),
) (snapshots.Snapshot, error) {
	name := snapshots.Name(begun)
	started := time.Now()
	got, err := take(ctx, func(ctx context.Context, content io.Reader) error { return bucket.Put(ctx, name, content) })
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	taken := snapshots.Snapshot{
		Name: name, Time: begun.UTC().Truncate(time.Second), Size: got.Size, SHA256: got.SHA256,
		Revision: got.Revision, EtcdVersion: got.Version, History: about.History,
		Cluster: cluster.Name, ClusterUID: string(cluster.UID), Member: about.Member, Duration: time.Since(started),
	}
	return taken, bucket.Commit(ctx, taken)
}

// nodes returns the nodes whose members can be reached.
func (r *SnapshotReconciler) nodes(ctx context.Context, s *snapshotScope) ([]string, error) {
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(s.controlPlane.Namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel},
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name}); err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	var nodes []string
	for i := range machines.Items {
		if machines.Items[i].Status.NodeRef.IsDefined() && machines.Items[i].DeletionTimestamp.IsZero() {
			nodes = append(nodes, machines.Items[i].Status.NodeRef.Name)
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// selectMember selects the member to take a snapshot of: one that answers and votes,
// and not the busier leader if there is a choice.
func selectMember(health *etcd.Health, nodes []string) (string, bool) {
	best := ""
	for _, m := range health.Members {
		if m.Learner || !m.Answers || !slices.Contains(nodes, m.Name) {
			continue
		}
		if !m.Leader {
			return m.Name, true
		}
		best = m.Name
	}
	return best, best != ""
}

// expire removes snapshots by the retention settings. The last snapshot of an
// earlier history stays, as the newest one does: it may be the only copy of
// that data.
func (r *SnapshotReconciler) expire(ctx context.Context, s *snapshotScope, bucket *snapshots.Bucket) error {
	retention := &s.controlPlane.Spec.Etcd.Snapshots.Retention
	for _, old := range snapshots.Expired(s.all, int(retention.GetCount()), int(retention.Days), s.now) {
		last, err := r.endsHistory(ctx, s, bucket, old.Name)
		if err != nil {
			return err
		}
		if last {
			continue
		}
		if err := bucket.Delete(ctx, old.Name); err != nil {
			return err
		}
		s.all = slices.DeleteFunc(s.all, func(kept snapshots.Snapshot) bool { return kept.Name == old.Name })
		ctrl.LoggerFrom(ctx).Info("Removed snapshot", "snapshot", old.Name)
	}
	return nil
}

// endsHistory reports whether the snapshot after the named one, which is not
// the newest, belongs to another history.
func (r *SnapshotReconciler) endsHistory(ctx context.Context, s *snapshotScope, bucket *snapshots.Bucket, name string) (bool, error) {
	at := slices.IndexFunc(s.all, func(known snapshots.Snapshot) bool { return known.Name == name })
	old, err := bucket.Manifest(ctx, name)
	if err != nil {
		return false, err
	}
	next, err := bucket.Manifest(ctx, s.all[at+1].Name)
	if err != nil {
		return false, err
	}
	return !old.Precedes(next.History, next.Revision), nil
}

// report sets the status from the result of the reconcile. Only this method
// sets conditions.
func (s *snapshotScope) report(err error) {
	spec, status := &s.controlPlane.Spec.Etcd.Snapshots, &s.controlPlane.Status.Etcd
	if !spec.IsDefined() {
		*status = controlplanev1.EtcdStatus{}
		conditions.Delete(s.controlPlane, controlplanev1.EtcdSnapshotsHealthyCondition)
		return
	}
	if s.unchanged {
		return
	}
	if s.listed {
		status.LastSnapshot = statusOf(s.newest)
		status.Snapshots = ptr.To(int32(len(s.all)))
		measure(client.ObjectKeyFromObject(s.controlPlane), s.newest, len(s.all))
		schedule(client.ObjectKeyFromObject(s.controlPlane), s.next)
	}
	status.NextSnapshotTime = nil
	if !s.next.IsZero() {
		status.NextSnapshotTime = &metav1.Time{Time: s.next}
	}
	if err != nil {
		status.LastFailureTime = &metav1.Time{Time: s.now}
	} else if s.listed {
		status.LastFailureTime = nil
	}
	conditions.Set(s.controlPlane, s.condition(err))
}

// condition returns whether all due snapshots are stored in the bucket.
func (s *snapshotScope) condition(err error) metav1.Condition {
	c := metav1.Condition{Type: controlplanev1.EtcdSnapshotsHealthyCondition, Status: metav1.ConditionFalse}
	switch {
	case err != nil:
		c.Reason, c.Message = s.stage, reconcile.Sentence(err)
		if c.Reason == "" {
			c.Reason = controlplanev1.EtcdSnapshotFailedReason
		}
	case s.controlPlane.Spec.Etcd.Snapshots.IsSuspended():
		c.Reason, c.Message = controlplanev1.EtcdSnapshotSuspendedReason, "Snapshots are suspended"
	case !s.listed:
		c.Status, c.Reason = metav1.ConditionUnknown, controlplanev1.EtcdSnapshotPendingReason
		c.Message = "Waiting for the control plane to be initialized or restored"
	case s.unsigned:
		c.Reason = controlplanev1.EtcdSnapshotNotAuthenticReason
		c.Message = fmt.Sprintf("Snapshot %s in the bucket is not signed with the key of this cluster: remove it, use another prefix, "+
			"or request a snapshot by annotation to continue", s.newest.Name)
	case s.foreign:
		c.Reason = controlplanev1.EtcdSnapshotHistoryMismatchReason
		c.Message = fmt.Sprintf("Snapshot %s in the bucket belongs to another control plane with this name: restore it, use another prefix, "+
			"or request a snapshot by annotation to continue with the current data", s.newest.Name)
	case s.newest.Name == "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, controlplanev1.EtcdSnapshotPendingReason, "No snapshot has been taken yet"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, controlplanev1.EtcdSnapshotTakenReason
	}
	return c
}

func statusOf(s snapshots.Snapshot) controlplanev1.EtcdSnapshotStatus {
	if s.Name == "" {
		return controlplanev1.EtcdSnapshotStatus{}
	}
	return controlplanev1.EtcdSnapshotStatus{
		Name: s.Name, Time: metav1.Time{Time: s.Time}, Size: s.Size, Revision: s.Revision,
		DurationSeconds: max(1, int32(math.Ceil(s.Duration.Seconds()))),
	}
}

func (r *SnapshotReconciler) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}
