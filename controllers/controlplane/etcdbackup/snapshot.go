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
	"sync"
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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
	"github.com/nova-platform/cluster-api-provider-nova/internal/snapshots"
)

const (
	// snapshotTimeout bounds one snapshot.
	snapshotTimeout = time.Hour
	// retryFirst and retryLast are when a snapshot that failed is tried again.
	retryFirst, retryLast = 10 * time.Second, 10 * time.Minute
	// leftoverAge is how old the rest of an upload must be to be nobody's: a
	// manager that lost its lease may not know yet.
	leftoverAge = 2 * snapshotTimeout
	// heldAgain is when to look again while a restore goes on.
	heldAgain = 30 * time.Second
	// lookAtLeast is how often the bucket is looked into at least.
	lookAtLeast = time.Hour
)

// SnapshotReconciler takes snapshots of the etcd of NovaControlPlanes.
type SnapshotReconciler struct {
	// Client may read from a cache, but not Secrets and ConfigMaps.
	Client client.Client
	// Tenants reaches etcd.
	Tenants *Tenants
	// Recorder takes events.
	Recorder events.EventRecorder
	// Fence keeps backups of another management cluster from being changed.
	Fence fence.Fence
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter
	// that control planes must have; any, if empty.
	WatchFilterValue string
	// Now returns the time. Empty means time.Now.
	Now func() time.Time

	turns turns

	mu      sync.Mutex
	settled map[client.ObjectKey]settlement
}

// settlement is until when nothing is to be done for a control plane as it is,
// so that its other changes cost the bucket nothing.
type settlement struct {
	generation int64
	until      time.Time
}

// SetupWithManager adds the controller to mgr.
func (r *SnapshotReconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	options.RateLimiter = loop.NewRateLimiter[reconcile.Request](retryFirst, retryLast)
	options.ReconciliationTimeout = snapshotTimeout
	err := ctrl.NewControllerManagedBy(mgr).
		Named("novacontrolplane-etcd-snapshots").
		For(&controlplanev1.NovaControlPlane{}, builder.WithPredicates(loop.IgnoreOwnStatus())).
		WithOptions(options).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up controller of snapshots: %w", err)
	}
	return nil
}

// snapshotScope is what one reconcile knows.
type snapshotScope struct {
	controlPlane *controlplanev1.NovaControlPlane
	cluster      *clusterv1.Cluster
	now          time.Time

	// all are the snapshots in the bucket, and newest what is known of the
	// last of them. listed is true once they were read.
	all    []snapshots.Snapshot
	newest snapshots.Snapshot
	listed bool
	// next is when the next one is due.
	next time.Time
	// unsigned is true if the newest one is not signed with the cluster's key.
	unsigned bool
	// foreign is true if etcd does not hold what goes on from the newest.
	foreign bool
	// served is true once a snapshot was taken that serves the request.
	served bool
	// stage is the reason of a failure.
	stage string
	// still is true if nothing was looked at, so nothing is said anew.
	still bool
}

func (s *snapshotScope) key() client.ObjectKey { return client.ObjectKeyFromObject(s.cluster) }

// asked reports whether somebody wants a snapshot now.
func (s *snapshotScope) asked() bool {
	_, asked := s.controlPlane.Annotations[controlplanev1.EtcdSnapshotAnnotation]
	return asked && !s.served
}

// Reconcile takes a snapshot of one control plane's etcd if it is due.
func (r *SnapshotReconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	s := &snapshotScope{controlPlane: &controlplanev1.NovaControlPlane{}, now: r.now()}
	if err := r.Client.Get(ctx, req.NamespacedName, s.controlPlane); err != nil {
		forget(req.NamespacedName)
		r.unsettle(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !loop.Watched(s.controlPlane, r.WatchFilterValue) || !s.controlPlane.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, s.controlPlane.ObjectMeta)
	if err != nil || cluster == nil || annotations.IsPaused(cluster, s.controlPlane) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.Fence.Check(cluster, s.controlPlane) != nil {
		// The other management cluster takes and deletes snapshots.
		return ctrl.Result{RequeueAfter: waitAgain}, nil
	}
	s.cluster = cluster
	helper, err := patch.NewHelper(s.controlPlane, r.Client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("preparing patch: %w", err)
	}
	before := ptr.Deref(conditions.Get(s.controlPlane, controlplanev1.EtcdSnapshotsHealthyCondition), metav1.Condition{})
	defer func() {
		s.report(reterr)
		r.announce(s, before)
		err := helper.Patch(ctx, s.controlPlane, patch.WithOwnedConditions{Conditions: []string{controlplanev1.EtcdSnapshotsHealthyCondition}})
		reterr = errors.Join(reterr, err)
	}()
	if !s.controlPlane.Spec.Etcd.Snapshots.IsDefined() {
		forget(req.NamespacedName)
		r.unsettle(req.NamespacedName)
		if s.asked() {
			delete(s.controlPlane.Annotations, controlplanev1.EtcdSnapshotAnnotation)
			r.Recorder.Eventf(s.controlPlane, nil, corev1.EventTypeWarning, "EtcdSnapshotFailed", "TakeSnapshot",
				"No snapshot is taken: spec.etcd.snapshots does not say where they lie")
		}
		return ctrl.Result{}, nil
	}
	return r.step(ctx, s)
}

// announce tells of a failure once.
func (r *SnapshotReconciler) announce(s *snapshotScope, before metav1.Condition) {
	is := conditions.Get(s.controlPlane, controlplanev1.EtcdSnapshotsHealthyCondition)
	if is == nil || is.Status != metav1.ConditionFalse || is.Reason == controlplanev1.EtcdSnapshotSuspendedReason ||
		is.Status == before.Status && is.Message == before.Message {
		return
	}
	r.Recorder.Eventf(s.controlPlane, nil, corev1.EventTypeWarning, "EtcdSnapshotFailed", "TakeSnapshot", "%s", is.Message)
}

// step looks into the bucket, takes a snapshot if one is due and removes old
// ones.
func (r *SnapshotReconciler) step(ctx context.Context, s *snapshotScope) (ctrl.Result, error) {
	if !ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false) {
		return ctrl.Result{}, nil
	}
	restore, err := initlock.ObserveRestore(ctx, r.Client, s.cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if restore.Name != "" {
		// What is there is about to be replaced.
		r.unsettle(client.ObjectKeyFromObject(s.controlPlane))
		return ctrl.Result{RequeueAfter: heldAgain}, nil
	}
	if left := r.untilSettled(s); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	done, ok := r.turns.take(s.controlPlane.Namespace)
	if !ok {
		s.still = true
		return ctrl.Result{RequeueAfter: turnAgain}, nil
	}
	defer done()
	r.unsettle(client.ObjectKeyFromObject(s.controlPlane))
	spec := &s.controlPlane.Spec.Etcd.Snapshots
	s.stage = controlplanev1.EtcdSnapshotStorageReason
	bucket, _, err := openBucket(ctx, r.Client, s.key(), &spec.S3, false)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer bucket.Close()
	if err := r.look(ctx, s, bucket); err != nil {
		return ctrl.Result{}, err
	}
	again, err := r.act(ctx, s, bucket)
	if err != nil || again == heldAgain {
		return ctrl.Result{RequeueAfter: again}, err
	}
	return ctrl.Result{RequeueAfter: r.settle(s, again)}, nil
}

// act takes a snapshot if one is due, removes old ones, and returns in how long
// the next one is due.
func (r *SnapshotReconciler) act(ctx context.Context, s *snapshotScope, bucket *snapshots.Bucket) (time.Duration, error) {
	again, err := r.due(s)
	if err != nil {
		return 0, err
	}
	if s.unsigned && !s.asked() {
		// Its time and its history may be anything.
		s.foreign = true
		return lookAtLeast, nil
	}
	if again == 0 {
		if s.newest.Name == "" && !s.asked() && !conditions.IsTrue(s.controlPlane, controlplanev1.EtcdClusterHealthyCondition) {
			// The first one has time until the cluster has come up.
			return heldAgain, nil
		}
		s.stage = controlplanev1.EtcdSnapshotFailedReason
		if err := r.take(ctx, s, bucket); err != nil {
			return 0, err
		}
		if s.foreign {
			return lookAtLeast, nil
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

// settle remembers that nothing is to be done for a while, and returns when to
// look again.
func (r *SnapshotReconciler) settle(s *snapshotScope, again time.Duration) time.Duration {
	if again < 0 || again > lookAtLeast {
		again = lookAtLeast
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled == nil {
		r.settled = map[client.ObjectKey]settlement{}
	}
	r.settled[client.ObjectKeyFromObject(s.controlPlane)] = settlement{generation: s.controlPlane.Generation, until: r.now().Add(again)}
	return again
}

// unsettle forgets that nothing is to be done.
func (r *SnapshotReconciler) unsettle(of client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.settled, of)
}

// untilSettled returns for how long nothing is to be done, 0 for not at all.
func (r *SnapshotReconciler) untilSettled(s *snapshotScope) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.settled[client.ObjectKeyFromObject(s.controlPlane)]
	if !ok || s.asked() || known.generation != s.controlPlane.Generation ||
		conditions.Get(s.controlPlane, controlplanev1.EtcdSnapshotsHealthyCondition) == nil {
		return 0
	}
	left := max(0, known.until.Sub(s.now))
	s.still = left > 0
	return left
}

// look reads what lies in the bucket.
func (r *SnapshotReconciler) look(ctx context.Context, s *snapshotScope, bucket *snapshots.Bucket) error {
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

// due returns in how long the next snapshot is due, 0 for now. It is negative
// while the schedule stands still.
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
	case s.asked():
		wait = 0
	case spec.IsSuspended():
		s.next = time.Time{}
		return -1, nil
	}
	if wait == 0 && s.newest.Name == snapshots.Name(s.now) {
		// Names tell seconds apart.
		return time.Second, nil
	}
	return wait, nil
}

// take takes a snapshot, unless another etcd than the one that runs now filled
// the bucket: an empty one would then pass for the newest there is, and what is
// to be restored would go with time. Whoever asks for one knows what runs.
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
	from, err := r.subject(ctx, s)
	if err != nil {
		return err
	}
	s.foreign = !s.asked() && s.newest.Name != "" && !s.newest.Precedes(from.history, from.revision)
	if s.foreign {
		return nil
	}
	if err := bucket.Sweep(ctx, s.now.Add(-leftoverAge)); err != nil {
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
		fmt.Sprintf("Snapshot %s of etcd member %s lies in the bucket: %d bytes, revision %d", taken.Name, taken.Member, taken.Size, taken.Revision))
	s.newest, s.unsigned = taken, false
	s.all = append(s.all, taken)
	return r.serve(ctx, s)
}

// serve removes the request that the new snapshot serves. A request that was
// made while it was taken stays: what happened before that one may be missing in
// the snapshot.
func (r *SnapshotReconciler) serve(ctx context.Context, s *snapshotScope) error {
	if !s.asked() {
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

// subject is what a snapshot is taken of.
type subject struct {
	member      string
	dial        etcd.Dial
	credentials *tls.Config
	// history and revision are what etcd holds.
	history  string
	revision int64
}

// subject finds the member to take a snapshot of, and what it holds.
func (r *SnapshotReconciler) subject(ctx context.Context, s *snapshotScope) (*subject, error) {
	nodes, err := r.nodes(ctx, s)
	if err != nil {
		return nil, err
	}
	from := &subject{}
	if from.dial, from.credentials, err = r.Tenants.Forwarded(ctx, s.key()); err != nil {
		return nil, err
	}
	health, err := etcd.Observe(ctx, from.dial, from.credentials, nodes)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Asking etcd for a snapshot failed", "error", err.Error())
		// Each member fails in words of its own.
		return nil, errors.New("no member of etcd answers through the API server")
	}
	member, ok := pick(health, nodes)
	if !ok {
		return nil, errors.New("no voting member of etcd answers through the API server")
	}
	from.member, from.revision = member, health.Revision
	if from.history, err = r.Tenants.history(ctx, s.key()); err != nil {
		ctrl.LoggerFrom(ctx).Info("Asking whose etcd it is failed", "error", err.Error())
		return nil, errors.New("the API server does not answer for the namespace kube-system, which tells whose etcd it is")
	}
	return from, nil
}

// store puts a snapshot into the bucket, with what is known about it, and makes
// it count.
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

// nodes are those whose members can be asked.
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

// pick chooses the member to take a snapshot of: one that answers and votes,
// and that is not the leader if there is a choice, for that one is busy.
func pick(health *etcd.Health, nodes []string) (string, bool) {
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

// expire removes snapshots that need not be kept any longer. The last one of
// what went before stays, as the newest does: it may be all that is left of it.
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

// endsHistory reports whether the snapshot after one, which is not the newest,
// does not go on from it.
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

// report turns what the reconcile saw into status. It is the only place that
// sets conditions.
func (s *snapshotScope) report(err error) {
	spec, status := &s.controlPlane.Spec.Etcd.Snapshots, &s.controlPlane.Status.Etcd
	if !spec.IsDefined() {
		*status = controlplanev1.EtcdStatus{}
		conditions.Delete(s.controlPlane, controlplanev1.EtcdSnapshotsHealthyCondition)
		return
	}
	if s.still {
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

// condition says whether the snapshots that are due lie in the bucket.
func (s *snapshotScope) condition(err error) metav1.Condition {
	c := metav1.Condition{Type: controlplanev1.EtcdSnapshotsHealthyCondition, Status: metav1.ConditionFalse}
	switch {
	case err != nil:
		c.Reason, c.Message = s.stage, loop.Sentence(err)
		if c.Reason == "" {
			c.Reason = controlplanev1.EtcdSnapshotFailedReason
		}
	case s.controlPlane.Spec.Etcd.Snapshots.IsSuspended():
		c.Reason, c.Message = controlplanev1.EtcdSnapshotSuspendedReason, "Snapshots are suspended"
	case !s.listed:
		c.Status, c.Reason = metav1.ConditionUnknown, controlplanev1.EtcdSnapshotPendingReason
		c.Message = "Waiting for the control plane to be initialised, or restored"
	case s.unsigned:
		c.Reason = controlplanev1.EtcdSnapshotNotAuthenticReason
		c.Message = fmt.Sprintf("Snapshot %s in the bucket is not signed with the key of this cluster: remove it, take another prefix, "+
			"or ask for a snapshot by annotation to go on", s.newest.Name)
	case s.foreign:
		c.Reason = controlplanev1.EtcdSnapshotHistoryMismatchReason
		c.Message = fmt.Sprintf("Snapshot %s in the bucket is of another control plane of this name: restore it, take another prefix, "+
			"or ask for a snapshot by annotation to go on with what runs now", s.newest.Name)
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
