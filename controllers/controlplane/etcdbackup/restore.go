package etcdbackup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	capisecret "sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/snapshots"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=novaetcdrestores,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=novaetcdrestores/status,verbs=patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=novaetcdrestores/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=delete

// RestoreReconciler prepares NovaEtcdRestores and reports their progress.
type RestoreReconciler struct {
	// Client may read from a cache, but not Secrets and ConfigMaps.
	Client client.Client
	// WorkloadClusters connects to etcd and the API servers of workload clusters.
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
}

// SetupWithManager adds the controller to mgr.
func (r *RestoreReconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	options = reconcile.Options(options)
	// A snapshot of a surviving member can take long.
	options.ReconciliationTimeout = timelimits.Hourly
	err := ctrl.NewControllerManagedBy(mgr).
		Named("novaetcdrestore").
		For(&controlplanev1.NovaEtcdRestore{}, builder.WithPredicates(reconcile.IgnoreOwnStatus())).
		WithOptions(options).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up controller of restores: %w", err)
	}
	return nil
}

// Reconcile reconciles one restore.
func (r *RestoreReconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	s := &restoreScope{restore: &controlplanev1.NovaEtcdRestore{}, now: r.now()}
	if err := r.Client.Get(ctx, req.NamespacedName, s.restore); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.restore.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	helper, err := patch.NewHelper(s.restore, r.Client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("preparing patch: %w", err)
	}
	if mine, err := r.find(ctx, s); err != nil || !mine {
		return ctrl.Result{}, err
	}
	if (s.paused != "" || s.fenced != nil) && s.restore.Finished() != "" {
		return ctrl.Result{RequeueAfter: timelimits.LongPoll}, nil
	}
	defer func() {
		r.report(s, reterr)
		err := helper.Patch(ctx, s.restore, patch.WithStatusObservedGeneration{},
			patch.WithOwnedConditions{Conditions: []string{controlplanev1.EtcdRestoreReadyCondition}})
		reterr = errors.Join(reterr, err)
	}()
	if s.paused != "" {
		// A paused restore keeps its phase.
		s.setPhasef(cmp.Or(s.restore.Status.Phase, controlplanev1.EtcdRestorePending), "Waiting because %s is paused", s.paused)
		return ctrl.Result{RequeueAfter: timelimits.LongPoll}, nil
	}
	if s.fenced != nil {
		s.setPhasef(cmp.Or(s.restore.Status.Phase, controlplanev1.EtcdRestorePending), "%s", fence.Condition(s.fenced).Message)
		return ctrl.Result{RequeueAfter: timelimits.LongPoll}, nil
	}
	again, err := r.step(ctx, s)
	if refused, is := errors.AsType[*refusedError](err); is {
		s.restore.Annotations = with(s.restore.Annotations, controlplanev1.EtcdRestoreFinishedAnnotation, string(controlplanev1.EtcdRestoreFailed))
		s.reason = controlplanev1.EtcdRestoreRefusedReason
		s.setPhasef(controlplanev1.EtcdRestoreFailed, "%s", reconcile.Sentence(refused))
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// find finds the control plane and its cluster. It reports whether this manager
// reconciles the restore.
func (r *RestoreReconciler) find(ctx context.Context, s *restoreScope) (bool, error) {
	controlPlane := &controlplanev1.NovaControlPlane{}
	key := client.ObjectKey{Namespace: s.restore.Namespace, Name: s.restore.Spec.ControlPlaneRef.Name}
	err := r.Client.Get(ctx, key, controlPlane)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading NovaControlPlane: %w", err)
	}
	s.controlPlane = controlPlane
	if !reconcile.Watched(controlPlane, r.WatchFilterValue) {
		return false, nil
	}
	s.cluster, err = util.GetOwnerCluster(ctx, r.Client, controlPlane.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading Cluster: %w", err)
	}
	s.paused = s.pausedBy()
	if s.cluster != nil && s.paused == "" {
		s.fenced = r.Fence.Check(s.cluster, controlPlane)
	}
	return true, nil
}

// step runs the next step of the restore.
func (r *RestoreReconciler) step(ctx context.Context, s *restoreScope) (time.Duration, error) {
	if s.restore.Finished() != "" {
		return 0, r.finish(ctx, s)
	}
	switch {
	case s.controlPlane == nil:
		s.setPhasef(controlplanev1.EtcdRestorePending, "NovaControlPlane %s does not exist", s.restore.Spec.ControlPlaneRef.Name)
		return timelimits.LongPoll, nil
	case s.cluster == nil:
		s.setPhasef(controlplanev1.EtcdRestorePending, "NovaControlPlane %s belongs to no Cluster yet", s.controlPlane.Name)
		return timelimits.LongPoll, nil
	}
	// The owner reference lets the restore be deleted and moved with the
	// control plane.
	if err := controllerutil.SetOwnerReference(s.controlPlane, s.restore, r.Client.Scheme()); err != nil {
		return 0, fmt.Errorf("owning restore: %w", err)
	}
	if err := r.observe(ctx, s); err != nil {
		return 0, err
	}
	if s.restore.Restored() {
		return r.join(ctx, s)
	}
	s.restore.Annotations = with(s.restore.Annotations, controlplanev1.EtcdRestoreIDAnnotation, s.id())
	if done, err := r.carriedOut(ctx, s); err != nil || done {
		return timelimits.ShortPoll, err
	}
	if s.formerSecret {
		s.setPhasef(cmp.Or(s.restore.Status.Phase, controlplanev1.EtcdRestorePending), "Waiting for the Secret of a former NovaEtcdRestore %s to be deleted with it", s.restore.Name)
		return timelimits.ShortPoll, nil
	}
	if s.lock.Name == s.restore.Name {
		return r.follow(ctx, s)
	}
	before, err := r.before(ctx, s)
	if err != nil {
		return 0, err
	}
	if before != "" {
		s.setPhasef(controlplanev1.EtcdRestorePending, "Waiting for NovaEtcdRestore %s to complete", before)
		return timelimits.LongPoll, nil
	}
	if unknown := s.unknownMachines(); len(unknown) > 0 {
		s.reason = controlplanev1.EtcdRestoreUnknownMachineReason
		s.setPhasef(controlplanev1.EtcdRestorePending, "spec.fencing names Machines that are not control plane Machines of Cluster %s: %s. Correct the names",
			s.cluster.Name, strings.Join(unknown, ", "))
		return timelimits.LongPoll, nil
	}
	s.setPhasef(controlplanev1.EtcdRestorePreparing, "Waiting for the control plane's machines to be deleted")
	return timelimits.ShortPoll, r.prepare(ctx, s)
}

// observe reads the state of the restore. It changes nothing.
func (r *RestoreReconciler) observe(ctx context.Context, s *restoreScope) error {
	var err error
	if s.lock, err = initlock.ObserveRestore(ctx, r.Client, s.cluster); err != nil {
		return err
	}
	secret := &corev1.Secret{}
	err = r.Client.Get(ctx, client.ObjectKeyFromObject(s.restore), secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Secret of restore: %w", err)
	}
	switch {
	case err != nil:
	case ofDeletedRestore(secret, s.restore):
		s.formerSecret = true
	case !metav1.IsControlledBy(secret, s.restore):
		return refuse("Secret %s exists and does not belong to this restore: use another name", secret.Name)
	default:
		s.secret = secret
	}
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(s.restore.Namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel},
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name}); err != nil {
		return fmt.Errorf("listing machines: %w", err)
	}
	s.machines = machines.Items
	return nil
}

// ofDeletedRestore reports whether a Secret belongs to a deleted restore of the same
// name. The garbage collector deletes it shortly after.
func ofDeletedRestore(secret *corev1.Secret, restore *controlplanev1.NovaEtcdRestore) bool {
	owner := metav1.GetControllerOf(secret)
	return owner != nil && owner.Kind == "NovaEtcdRestore" && owner.Name == restore.Name && owner.UID != restore.UID
}

// before returns the name of the restore of the same control plane that comes
// first.
func (r *RestoreReconciler) before(ctx context.Context, s *restoreScope) (string, error) {
	list := &controlplanev1.NovaEtcdRestoreList{}
	if err := r.Client.List(ctx, list, client.InNamespace(s.restore.Namespace)); err != nil {
		return "", fmt.Errorf("listing restores: %w", err)
	}
	first, ok := controlplanev1.NextEtcdRestore(list.Items, s.controlPlane.Name)
	if !ok || first.Name == s.restore.Name {
		return "", nil
	}
	return first.Name, nil
}

// prepare finds or takes the snapshot and configures it in the Secret. After
// that the control plane's reconciler deletes the machines.
func (r *RestoreReconciler) prepare(ctx context.Context, s *restoreScope) error {
	if err := s.checkSource(); err != nil {
		return err
	}
	if !s.controlPlane.DeletionTimestamp.IsZero() {
		return refuse("NovaControlPlane %s is being deleted", s.controlPlane.Name)
	}
	// The status may have been lost during a restore; a restore in progress
	// proves the initialization.
	if s.lock.Name == "" && !ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false) && len(s.machines) > 0 {
		return refuse("NovaControlPlane %s is not initialized yet: there is nothing to restore", s.controlPlane.Name)
	}
	if s.external() {
		return r.prepareExternal(ctx, s)
	}
	if s.secret != nil && !r.stale(s) {
		return nil
	}
	spec := s.s3()
	if spec.Bucket == "" {
		return refuse("NovaControlPlane %s has no spec.etcd.snapshots and the restore has no spec.s3: set the bucket of the snapshots", s.controlPlane.Name)
	}
	done, ok := r.locks.tryLock(s.restore.Namespace)
	if !ok {
		s.setPhasef(controlplanev1.EtcdRestorePreparing, "Waiting for another restore of the namespace that reads its bucket")
		return nil
	}
	defer done()
	// The key of another Cluster may be in another management cluster.
	bucket, place, err := openBucket(ctx, r.Client, s.sourceCluster(), spec, s.sourceCluster() != s.key())
	if err != nil {
		return err
	}
	defer bucket.Close()
	found, err := r.source(ctx, s, bucket)
	if err != nil {
		return err
	}
	return r.writeSecret(ctx, s, bucket, place, found)
}

// source returns the snapshot to restore. Once it was selected it does not
// change.
func (r *RestoreReconciler) source(ctx context.Context, s *restoreScope, bucket *snapshots.Bucket) (snapshots.Snapshot, error) {
	name := s.restore.Spec.Source.Snapshot.Name
	if s.secret != nil {
		name = string(s.secret.Data[controlplanev1.EtcdRestoreSnapshotKey])
	}
	if name == "" {
		return r.rescue(ctx, s, bucket)
	}
	if name == controlplanev1.LatestEtcdSnapshot {
		var err error
		if name, err = r.latest(ctx, s, bucket); err != nil {
			return snapshots.Snapshot{}, err
		}
	}
	found, err := bucket.Get(ctx, name)
	if errors.Is(err, snapshots.ErrNotFound) && s.secret == nil {
		return found, refuse("There is no snapshot %s of cluster %s in bucket %s", name, s.sourceCluster().Name, s.s3().Bucket)
	}
	if err != nil {
		return found, err
	}
	return found, s.authentic(found)
}

// authentic refuses a snapshot that was not written for this cluster by its own
// management cluster: write access to the bucket would otherwise make its holder
// administrator of the restored cluster.
func (s *restoreScope) authentic(found snapshots.Snapshot) error {
	if _, accepted := s.restore.Annotations[controlplanev1.EtcdRestoreUnauthenticatedAnnotation]; found.Authentic || accepted {
		return nil
	}
	cluster := s.sourceCluster().Name
	if s.secret != nil {
		return fmt.Errorf("the manifest of snapshot %s was replaced: it is no longer signed with the key of cluster %s", found.Name, cluster)
	}
	return refuse("Snapshot %s is not signed with the key of cluster %s (the key of Secret %s): it was changed, belongs to another cluster, "+
		"or the key changed. To restore it nevertheless, set the annotation %s on a new NovaEtcdRestore",
		found.Name, cluster, capisecret.Name(cluster, capisecret.EtcdCA), controlplanev1.EtcdRestoreUnauthenticatedAnnotation)
}

// latest returns the name of the newest snapshot. If that snapshot begins
// another history, the one before it may be meant: an etcd that started empty
// must not be taken for the lost data.
func (r *RestoreReconciler) latest(ctx context.Context, s *restoreScope, bucket *snapshots.Bucket) (string, error) {
	all, err := bucket.List(ctx)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", refuse("There is no snapshot of cluster %s in bucket %s", s.sourceCluster().Name, s.s3().Bucket)
	}
	name := all[len(all)-1].Name
	if len(all) == 1 {
		return name, nil
	}
	newest, err := bucket.Manifest(ctx, name)
	if err != nil {
		return "", err
	}
	before, err := bucket.Manifest(ctx, all[len(all)-2].Name)
	if err != nil {
		return "", err
	}
	if !before.Precedes(newest.History, newest.Revision) {
		return "", refuse("The newest snapshot %s (revision %d) does not continue the one before it, %s (revision %d), "+
			"but belongs to a recreated control plane: name the snapshot to restore", newest.Name, newest.Revision, before.Name, before.Revision)
	}
	return name, nil
}

// rescue takes a snapshot of a surviving member, past the API server.
func (r *RestoreReconciler) rescue(ctx context.Context, s *restoreScope, bucket *snapshots.Bucket) (snapshots.Snapshot, error) {
	name := s.restore.Spec.Source.Machine.Name
	at := slices.IndexFunc(s.machines, func(m clusterv1.Machine) bool { return m.Name == name })
	if at < 0 {
		return snapshots.Snapshot{}, refuse("There is no control plane Machine %s", name)
	}
	machine := &s.machines[at]
	node := machine.Name
	if machine.Status.NodeRef.IsDefined() {
		node = machine.Status.NodeRef.Name
	}
	dial, credentials, err := r.WorkloadClusters.Direct(ctx, s.key(), machine)
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	health, err := etcd.Observe(ctx, dial, credentials, []string{node})
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Querying a surviving member failed", "Machine", name, "error", err.Error())
		return snapshots.Snapshot{}, fmt.Errorf("etcd on machine %s does not answer at port %s of the machine's address", name, etcd.Port)
	}
	for _, m := range health.Members {
		if m.Answers {
			return snapshots.Snapshot{}, refuse("etcd on machine %s has a leader: its quorum is not lost. To restore older data, name a snapshot", name)
		}
	}
	// Without an API server its history is unknown.
	taken, err := store(ctx, bucket, s.cluster, snapshots.Snapshot{Member: node}, s.now, func(ctx context.Context, put func(context.Context, io.Reader) error) (etcd.Snapshot, error) {
		return etcd.TakeSnapshot(ctx, dial, credentials, node, put)
	})
	if err != nil {
		return taken, err
	}
	r.Recorder.Eventf(s.restore, nil, corev1.EventTypeNormal, "EtcdSnapshotTaken", "Rescue", "%s",
		fmt.Sprintf("Snapshot %s of the surviving member on machine %s is stored in the bucket: %d bytes, revision %d", taken.Name, name, taken.Size, taken.Revision))
	return taken, nil
}

// stale reports whether the URL in the Secret has to be renewed.
func (r *RestoreReconciler) stale(s *restoreScope) bool {
	expires, err := time.Parse(time.RFC3339, string(s.secret.Data[controlplanev1.EtcdRestoreExpiresKey]))
	return err != nil || s.now.After(expires.Add(-timelimits.Hourly))
}

// writeSecret writes the location of the snapshot into the Secret.
func (r *RestoreReconciler) writeSecret(ctx context.Context, s *restoreScope, bucket *snapshots.Bucket, place snapshots.Place, found snapshots.Snapshot) error {
	link, err := bucket.URL(ctx, found.Name, 2*timelimits.Hourly)
	if err != nil {
		return err
	}
	wanted := s.newSecret(map[string][]byte{
		controlplanev1.EtcdRestoreSnapshotKey: []byte(found.Name),
		controlplanev1.EtcdRestoreURLKey:      []byte(link),
		controlplanev1.EtcdRestoreExpiresKey:  []byte(s.now.Add(2 * timelimits.Hourly).UTC().Format(time.RFC3339)),
		controlplanev1.EtcdRestoreSHA256Key:   []byte(found.SHA256),
		controlplanev1.EtcdRestoreCAKey:       place.CA,
	})
	s.restore.Status.Snapshot = statusOf(found)
	if s.secret == nil {
		if err := r.Client.Create(ctx, wanted); err != nil {
			return fmt.Errorf("creating Secret of restore: %w", err)
		}
		r.Recorder.Eventf(s.restore, nil, corev1.EventTypeNormal, "Prepared", "Prepare", "Snapshot %s is verified and will be restored", found.Name)
		s.secret = wanted
		return nil
	}
	renewed := s.secret.DeepCopy()
	renewed.Data = wanted.Data
	if err := r.Client.Update(ctx, renewed); err != nil {
		return fmt.Errorf("updating Secret of restore: %w", err)
	}
	s.secret = renewed
	return nil
}

// follow reports the progress of the machines, and ends the restore of etcd
// once the new machine's member works.
func (r *RestoreReconciler) follow(ctx context.Context, s *restoreScope) (time.Duration, error) {
	if s.secret == nil || r.stale(s) {
		if err := r.prepare(ctx, s); err != nil {
			return 0, err
		}
	}
	machine, others := s.restorer()
	switch {
	case len(others) > 0:
		s.setPhasef(controlplanev1.EtcdRestoreRemoving, "Waiting for machines to be deleted: %s", strings.Join(others, ", "))
		return timelimits.ShortPoll, nil
	case machine == nil && s.answers:
		s.setPhasef(controlplanev1.EtcdRestoreRemoving, "Waiting until the API server stops answering: it still answers, although all known control plane Machines are deleted. "+
			"Condition %s of NovaControlPlane %s names the nodes that it runs on", controlplanev1.AvailableCondition, s.controlPlane.Name)
		return timelimits.ShortPoll, nil
	case machine == nil:
		s.setPhasef(controlplanev1.EtcdRestoreRemoving, "Waiting for the machine that restores etcd to be created")
		return timelimits.ShortPoll, nil
	}
	s.restore.Status.Machine = machine.Name
	s.setPhasef(controlplanev1.EtcdRestoreRestoring, "Waiting for machine %s to restore the snapshot and initialize the control plane", machine.Name)
	if s.external() {
		s.setPhasef(controlplanev1.EtcdRestoreRestoring, "Waiting for machine %s to initialize the control plane with the data of external etcd", machine.Name)
	}
	workloadClient, err := r.initializedClient(ctx, s, machine)
	if err != nil || workloadClient == nil {
		return timelimits.ShortPoll, err
	}
	if err := r.cleanUp(ctx, s, workloadClient); err != nil {
		return 0, err
	}
	if err := r.record(ctx, s, machine.Name); err != nil {
		return 0, err
	}
	// This is stored first: until the lock is updated too, the step is
	// repeated.
	s.restore.Annotations = with(s.restore.Annotations, controlplanev1.EtcdRestoredAnnotation, machine.Name)
	if err := r.annotate(ctx, s); err != nil {
		return 0, err
	}
	if err := initlock.EndRestore(ctx, r.Client, s.cluster, s.restore.Name); err != nil {
		return 0, err
	}
	r.Recorder.Eventf(s.restore, nil, corev1.EventTypeNormal, "Restored", "Restore", "Machine %s restored the control plane", machine.Name)
	s.setPhasef(controlplanev1.EtcdRestoreJoining, "Waiting for further control plane machines to join")
	return timelimits.ShortPoll, nil
}

// initializedClient returns a client of the workload cluster once the machine is a
// node of the control plane and its member of etcd works, and nil before.
func (r *RestoreReconciler) initializedClient(ctx context.Context, s *restoreScope, machine *clusterv1.Machine) (client.Client, error) {
	if !machine.Status.NodeRef.IsDefined() {
		return nil, nil //nolint:nilnil // Not yet is not a failure.
	}
	workloadClient, err := r.WorkloadClusters.Client(ctx, s.key())
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{}
	err = workloadClient.Get(ctx, client.ObjectKey{Name: machine.Status.NodeRef.Name}, node)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading node of machine %s: %w", machine.Name, err)
	}
	if _, joined := node.Labels[facts.RoleControlPlane]; !joined {
		return nil, nil //nolint:nilnil // Not yet is not a failure, and a missing node has no label.
	}
	waits, err := r.memberProblem(ctx, s, node.Name)
	if err != nil || waits != "" {
		s.message = waits
		return nil, err
	}
	return workloadClient, nil
}

// memberProblem returns why the restored member does not work alone yet; empty if it
// does.
func (r *RestoreReconciler) memberProblem(ctx context.Context, s *restoreScope, node string) (string, error) {
	if s.external() {
		// The API server answered, so its etcd works.
		return "", nil
	}
	dial, credentials, err := r.WorkloadClusters.Forwarded(ctx, s.key())
	if err != nil {
		return "", err
	}
	health, err := etcd.Observe(ctx, dial, credentials, []string{node})
	if err != nil {
		ctrl.LoggerFrom(ctx).V(4).Info("Querying the restored member failed", "error", err.Error())
		return fmt.Sprintf("Waiting for etcd on node %s to answer", node), nil
	}
	if problems := health.Problems([]string{node}); len(problems) > 0 {
		return "Waiting for etcd: " + strings.Join(problems, ", "), nil
	}
	return "", nil
}

// cleanUp deletes nodes that the snapshot contains and that no longer have a
// machine: those of the former control plane, and those whose Machine does not
// exist any more.
func (r *RestoreReconciler) cleanUp(ctx context.Context, s *restoreScope, workloadClient client.Client) error {
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(s.restore.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name}); err != nil {
		return fmt.Errorf("listing machines: %w", err)
	}
	nodes := &corev1.NodeList{}
	if err := workloadClient.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	there := slices.DeleteFunc(machines.Items, func(m clusterv1.Machine) bool { return s.isFenced(&m) })
	for _, node := range orphanedNodes(nodes.Items, there, s.cluster.Name, s.sourceCluster().Name) {
		if err := workloadClient.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting node %s: %w", node, err)
		}
		r.Recorder.Eventf(s.restore, nil, corev1.EventTypeNormal, "NodeDeleted", "CleanUp", "Deleted node %s, whose machine does not exist", node)
	}
	return nil
}

// orphanedNodes returns the nodes to delete: those of the clusters that have no Machine.
// A node that never had a Machine belongs to the user, unless it is a control
// plane node.
func orphanedNodes(nodes []corev1.Node, machines []clusterv1.Machine, clusters ...string) []string {
	var found []string
	for i := range nodes {
		node := &nodes[i]
		exists := slices.ContainsFunc(machines, func(m clusterv1.Machine) bool {
			return m.Status.NodeRef.Name == node.Name || m.Name == node.Name || m.Name == node.Annotations[clusterv1.MachineAnnotation]
		})
		_, controlPlane := node.Labels[facts.RoleControlPlane]
		ours := slices.Contains(clusters, node.Annotations[clusterv1.ClusterNameAnnotation]) && node.Annotations[clusterv1.MachineAnnotation] != ""
		if !exists && (controlPlane || ours) {
			found = append(found, node.Name)
		}
	}
	return found
}

// report sets the status from the result of the reconcile. Only this method
// sets conditions.
func (r *RestoreReconciler) report(s *restoreScope, err error) {
	c := metav1.Condition{
		Type: controlplanev1.EtcdRestoreReadyCondition, Status: metav1.ConditionFalse,
		Reason: s.reason, Message: s.message,
	}
	if c.Reason == "" {
		c.Reason = controlplanev1.EtcdRestoreProgressingReason
	}
	switch {
	case err != nil:
		c.Reason, c.Message = controlplanev1.EtcdRestoreSourceReason, reconcile.Sentence(err)
	case s.phase == controlplanev1.EtcdRestoreSucceeded:
		c.Status = metav1.ConditionTrue
	}
	status := &s.restore.Status
	if s.phase != "" {
		status.Phase = s.phase
	}
	if s.restore.Finished() != "" && status.CompletionTime == nil {
		status.CompletionTime = &metav1.Time{Time: s.now}
	}
	before := conditions.Get(s.restore, c.Type)
	if (c.Reason == controlplanev1.EtcdRestoreSourceReason || c.Reason == controlplanev1.EtcdRestoreRefusedReason) &&
		(before == nil || before.Message != c.Message) {
		r.Recorder.Eventf(s.restore, nil, corev1.EventTypeWarning, c.Reason, "Restore", "%s", c.Message)
	}
	conditions.Set(s.restore, c)
}
