package approver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

const (
	// permissionsTTL is how long the permissions for joining are assumed to exist after a check.
	permissionsTTL = 10 * time.Minute
	// pendingRetry is the delay until a pending request is decided again if no event triggers it.
	pendingRetry = 15 * time.Second
	// staleCacheRetry is the delay until requests are decided again after the cache was out of date.
	staleCacheRetry = time.Second
	// passTimeout bounds one pass over the requests of a cluster. After a pass, the cluster pauses for
	// restShare times the duration of the pass. So the cluster occupies at most a quarter of a worker,
	// however slow its responses are and however many requests its nodes create.
	passTimeout, pauseFactor = 5 * time.Second, 3
	// apiUnavailableRetry is the delay until a workload cluster that serves no certificate requests is
	// read again: its API server must be changed first.
	apiUnavailableRetry = time.Minute
)

// Reconciler approves or denies the certificate requests of nodes in workload clusters: the
// first client certificate of a kubelet that joins, and serving certificates. It does so for machines
// with a NovaConfig and ignores all others. In clusters with a NovaControlPlane it also ends the
// renewals of nodes without a Machine.
type Reconciler struct {
	// Client reads through the cache. Defaults to the manager's client.
	Client client.Client
	// Recorder records events. Defaults to the manager's recorder.
	Recorder events.EventRecorder
	// WorkloadClusters connects to the workload clusters.
	WorkloadClusters clustercache.ClusterCache
	// Fence leaves the requests of another management cluster alone.
	Fence fence.Fence
	// WatchFilterValue limits the Clusters to those with this watch label. If not set, all Clusters
	// are reconciled.
	WatchFilterValue string

	watcher clustercache.SourceWatcher[ctrl.Request]
	// pausedUntil holds the end of each cluster's pause. continueAfter is the user after which the
	// next pass over the requests of a cluster continues.
	pausedUntil        reconcile.Memory[client.ObjectKey, time.Time]
	continueAfter      reconcile.Memory[client.ObjectKey, string]
	permissionsWritten reconcile.Memory[client.ObjectKey, time.Time]
	// renewals are the written lists of nodes that may renew their certificates.
	renewals reconcile.Memory[client.ObjectKey, renewal]
	// addressCache are the addresses that were looked up for serving certificates.
	addressCache reconcile.Memory[client.ObjectKey, cachedAddresses]
	// reported holds the pending requests for which an event was recorded.
	reported reconcile.Memory[types.UID, string]
	// open holds the requests of each workload cluster that were open in the last pass. A request that
	// is no longer open may never have been decided: kubelets replace requests that are not approved,
	// and the old ones are deleted.
	open reconcile.Memory[client.ObjectKey, map[types.UID]struct{}]
	// apiUnavailable holds the workload clusters for which an event reported that they serve no
	// certificate requests.
	apiUnavailable reconcile.Memory[client.ObjectKey, struct{}]
}

// Reconcile approves or denies the open requests of one workload cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		r.permissionsWritten.Forget(req.NamespacedName)
		r.renewals.Forget(req.NamespacedName)
		r.addressCache.Forget(req.NamespacedName)
		r.apiUnavailable.Forget(req.NamespacedName)
		r.pausedUntil.Forget(req.NamespacedName)
		r.continueAfter.Forget(req.NamespacedName)
		r.setOpen(req.NamespacedName, nil)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.Watched(cluster, r.WatchFilterValue) || annotations.IsPaused(cluster, cluster) || !cluster.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	facts, err := r.facts(ctx, cluster)
	if err != nil || len(facts.ours) == 0 {
		return ctrl.Result{}, err
	}
	if err := joining.Allowed(ctx, r.Client, r.Fence, cluster); err != nil {
		if fence.IsOther(err) {
			ctrl.LoggerFrom(ctx).V(2).Info("Ignoring certificate requests", "cause", err.Error())
			return ctrl.Result{RequeueAfter: permissionsTTL}, nil
		}
		return ctrl.Result{}, err
	}
	until, _ := r.pausedUntil.Get(req.NamespacedName)
	// The clock is read once: at a second read the remaining time could be zero, and the request would
	// wait for the next event.
	if left := time.Until(until); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	began := time.Now()
	result, err := r.decideAll(ctx, facts)
	r.pausedUntil.Set(req.NamespacedName, time.Now().Add(pauseFactor*time.Since(began)))
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		// A new connection to the workload cluster triggers the next reconcile.
		r.permissionsWritten.Forget(req.NamespacedName)
		r.renewals.Forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if missing, is := errors.AsType[*apiUnavailableError](err); is {
		r.announceAPIUnavailable(ctx, cluster, missing)
		return ctrl.Result{RequeueAfter: apiUnavailableRetry}, nil
	}
	if err == nil {
		r.apiUnavailable.Forget(req.NamespacedName)
	}
	return result, err
}

// apiUnavailableError means that a workload cluster responds, but serves no certificate requests.
type apiUnavailableError struct{ err error }

func (e *apiUnavailableError) Error() string { return e.err.Error() }

func (e *apiUnavailableError) Unwrap() error { return e.err }

// isAPIUnavailable distinguishes a workload cluster that does not serve requests from an unreachable
// one.
func isAPIUnavailable(err error) bool {
	var answer apierrors.APIStatus
	return meta.IsNoMatchError(err) || errors.As(err, &answer)
}

// announceAPIUnavailable records once that no machine can join, because each machine waits for its
// certificate.
func (r *Reconciler) announceAPIUnavailable(ctx context.Context, cluster *clusterv1.Cluster, missing *apiUnavailableError) {
	key := client.ObjectKeyFromObject(cluster)
	if _, ok := r.apiUnavailable.Get(key); ok {
		return
	}
	r.apiUnavailable.Set(key, struct{}{})
	ctrl.LoggerFrom(ctx).Error(missing, "The workload cluster does not serve CertificateSigningRequests")
	r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, bootstrapv1.CertificatesAPIUnavailableEventReason, "Judge",
		"No machine can join: the API server does not serve %s; check its argument runtime-config: %s", certificatesv1.SchemeGroupVersion, missing)
}

// clusterFacts holds the data by which the requests of one cluster are decided.
type clusterFacts struct {
	cluster *clusterv1.Cluster
	// machines are all Machines of the cluster, and ours those with a NovaConfig.
	machines, ours []*clusterv1.Machine
	// workload reads and writes in the workload cluster, without the cache.
	workload client.Client
	// renewable lists the nodes that may renew their certificates. It is nil if other controllers
	// manage renewals.
	renewable []string
}

// facts reads the Machines of a cluster.
func (r *Reconciler) facts(ctx context.Context, cluster *clusterv1.Cluster) (*clusterFacts, error) {
	list := &clusterv1.MachineList{}
	err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
	if err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	f := &clusterFacts{cluster: cluster}
	for i := range list.Items {
		f.machines = append(f.machines, &list.Items[i])
		ref := list.Items[i].Spec.Bootstrap.ConfigRef
		if ref.Kind == "NovaConfig" && ref.APIGroup == bootstrapv1.GroupVersion.Group {
			f.ours = append(f.ours, &list.Items[i])
		}
	}
	return f, nil
}

// decideAll prepares a workload cluster and decides its open requests.
func (r *Reconciler) decideAll(ctx context.Context, f *clusterFacts) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	cluster := client.ObjectKeyFromObject(f.cluster)
	live, err := r.WorkloadClusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	f.workload = live
	if at, ok := r.permissionsWritten.Get(cluster); !ok || time.Since(at) > permissionsTTL {
		if err := allowJoin(ctx, live); err != nil {
			return ctrl.Result{}, err
		}
		r.permissionsWritten.Set(cluster, time.Now())
	}
	if err := r.bindRenewals(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	open, err := r.requests(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer r.setOpen(cluster, open)
	after, _ := r.continueAfter.Get(cluster)
	picked, last := pick(open, after)
	r.continueAfter.Set(cluster, last)
	result, err := r.decideOpen(ctx, picked, f)
	switch {
	case last != "":
		result.RequeueAfter = min(result.RequeueAfter, staleCacheRetry)
	case len(picked) < len(open):
		result.RequeueAfter = min(result.RequeueAfter, pendingRetry)
	}
	return result, err
}

// setOpen stores the open requests of a workload cluster, and drops the recorded events of requests
// that are no longer open.
func (r *Reconciler) setOpen(cluster client.ObjectKey, open []*certificatesv1.CertificateSigningRequest) {
	now := make(map[types.UID]struct{}, len(open))
	for _, csr := range open {
		now[csr.UID] = struct{}{}
	}
	before, _ := r.open.Get(cluster)
	for uid := range before {
		if _, still := now[uid]; !still {
			r.reported.Forget(uid)
		}
	}
	if len(now) == 0 {
		r.open.Forget(cluster)
		return
	}
	r.open.Set(cluster, now)
}

// decideOpen decides the open requests of a workload cluster one by one.
func (r *Reconciler) decideOpen(ctx context.Context, open []*certificatesv1.CertificateSigningRequest, f *clusterFacts) (ctrl.Result, error) {
	result := ctrl.Result{RequeueAfter: permissionsTTL}
	var errs []error
	for _, csr := range open {
		decision, machine, err := r.decide(ctx, csr, f)
		if apierrors.IsConflict(err) {
			// The cache is out of date: another key may have been recorded a moment ago.
			result.RequeueAfter = min(result.RequeueAfter, staleCacheRetry)
			continue
		}
		if err == nil {
			err = r.writeDecision(ctx, csr, f.workload, decision, machine)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("deciding certificate request %s: %w", csr.Name, err))
		}
		if decision.action == hold {
			result.RequeueAfter = min(result.RequeueAfter, pendingRetry)
		}
	}
	return result, errors.Join(errs...)
}

// requests returns the open requests of nodes.
func (r *Reconciler) requests(ctx context.Context, cluster client.ObjectKey) (open []*certificatesv1.CertificateSigningRequest, err error) {
	workloadClient, err := r.WorkloadClusters.GetClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	kind := certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest")
	if _, err := workloadClient.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); isAPIUnavailable(err) {
		return nil, &apiUnavailableError{err: err}
	} else if err != nil {
		return nil, fmt.Errorf("discovering certificate requests: %w", err)
	}
	if err := r.watch(ctx, cluster); err != nil {
		return nil, err
	}
	list := &certificatesv1.CertificateSigningRequestList{}
	// The list is only read, and copying thousands of requests is expensive.
	if err := workloadClient.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing certificate requests: %w", err)
	}
	for i := range list.Items {
		csr := &list.Items[i]
		if slices.Contains(kubeletSigners, csr.Spec.SignerName) && isOpen(csr) {
			open = append(open, csr)
		}
	}
	return open, nil
}

// decide decides one request, and returns the machine that it concerns.
func (r *Reconciler) decide(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, f *clusterFacts) (csrDecision, *clusterv1.Machine, error) {
	parsed := read(csr)
	node := strings.TrimPrefix(parsed.username, nodeUserPrefix)
	if csr.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		m := machineOfNode(node, f.ours)
		if !servesNode(parsed, m) {
			return csrDecision{action: ignore}, m, nil
		}
		net, err := r.network(ctx, f)
		return decideServing(parsed, m, net, f.machines), m, err
	}
	if node != parsed.username {
		m := machineOfNode(node, f.machines)
		return decideRenewal(parsed, m, f.renewable), m, nil
	}
	uid, ours, err := joinerOf(ctx, f.workload, parsed)
	if err != nil || !ours {
		return csrDecision{action: ignore}, nil, err
	}
	machine, err := r.machineOfJoiner(ctx, uid, f.ours)
	if err != nil {
		return csrDecision{}, nil, err
	}
	if machine == nil {
		return decideJoin(parsed, joiner{}), nil, nil
	}
	decision, err := r.decideJoiner(ctx, parsed, f.workload, machine)
	return decision, machine, err
}

// decideJoiner decides a request that was made with a machine's credential. The key is recorded before
// it is approved: no other key is approved later, whatever happens in between and however old the
// cache is.
func (r *Reconciler) decideJoiner(ctx context.Context, parsed request, workloadClient client.Client, machine *clusterv1.Machine) (csrDecision, error) {
	err := workloadClient.Get(ctx, client.ObjectKey{Name: machine.Name}, &corev1.Node{})
	if client.IgnoreNotFound(err) != nil {
		return csrDecision{}, fmt.Errorf("reading node: %w", err)
	}
	from := joiner{machine: machine, node: !apierrors.IsNotFound(err)}
	config := &bootstrapv1.NovaConfig{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}, config); err != nil {
		if apierrors.IsNotFound(err) {
			return pending("The NovaConfig of Machine %s does not exist", machine.Name), nil
		}
		return csrDecision{}, fmt.Errorf("reading NovaConfig: %w", err)
	}
	from.certified = config.Annotations[bootstrapv1.CertifiedKeyAnnotation]
	decision := decideJoin(parsed, from)
	if decision.action != approve || from.certified != "" {
		return decision, nil
	}
	updated := config.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, bootstrapv1.CertifiedKeyAnnotation, parsed.keyHash())
	if err := r.Client.Patch(ctx, updated, client.MergeFromWithOptions(config, client.MergeFromWithOptimisticLock{})); err != nil {
		return csrDecision{}, fmt.Errorf("recording key: %w", err)
	}
	return decision, nil
}

// machineOfJoiner returns the machine that a credential belongs to. If the machine was moved after it
// got the credential, its bootstrap data identifies it.
func (r *Reconciler) machineOfJoiner(ctx context.Context, uid types.UID, machines []*clusterv1.Machine) (*clusterv1.Machine, error) {
	for _, m := range machines {
		if m.UID == uid {
			return m, nil
		}
	}
	for _, m := range machines {
		if m.Status.NodeRef.IsDefined() || uid == "" {
			continue // the credential of this machine is not valid any more
		}
		data := &corev1.Secret{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.Bootstrap.ConfigRef.Name}, data)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading bootstrap data: %w", err)
		}
		if data.Annotations[joining.JoinerAnnotation] == string(uid) && data.Labels[clusterv1.ClusterNameLabel] == m.Spec.ClusterName {
			return m, nil
		}
	}
	return nil, nil //nolint:nilnil // nil means that the credential belongs to no machine
}

// writeDecision writes a decision to the request and records an event.
func (r *Reconciler) writeDecision(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, workloadClient client.Client,
	j csrDecision, machine *clusterv1.Machine,
) error {
	if j.action == ignore {
		return nil
	}
	if j.action != hold {
		condition := certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "NovaMachine", Message: j.reason,
			LastUpdateTime: metav1.Now(),
		}
		if j.action == deny {
			condition.Type = certificatesv1.CertificateDenied
		}
		decided := csr.DeepCopy()
		decided.Status.Conditions = append(decided.Status.Conditions, condition)
		// It uses a patch, because the cache does not keep the whole object.
		err := workloadClient.SubResource("approval").Patch(ctx, decided, client.MergeFromWithOptions(csr, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // another approver was faster, and the watch reports it
		}
		if err != nil {
			return err
		}
	}
	r.announce(ctx, csr, j, machine)
	return nil
}

// announce records an event for a decision. A pending request gets one event per reason.
func (r *Reconciler) announce(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, j csrDecision, machine *clusterv1.Machine) {
	kind := kindOf(csr)
	if why, ok := r.reported.Get(csr.UID); ok && j.action == hold && why == j.reason {
		return
	}
	if j.action == hold {
		r.reported.Set(csr.UID, j.reason)
	} else {
		r.reported.Forget(csr.UID)
	}
	decisions.WithLabelValues(kind, strings.ToLower(string(j.action))).Inc()
	ctrl.LoggerFrom(ctx).Info("Decided certificate request", "request", csr.Name, "user", csr.Spec.Username, "decision", j.action, "reason", j.reason)
	if machine == nil {
		return
	}
	switch j.action {
	case deny:
		r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, bootstrapv1.CertificateDeniedEventReason, string(deny), "Denied the certificate request %s: %s", csr.Name, j.reason)
	case hold:
		r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, bootstrapv1.CertificatePendingEventReason, string(hold), "Left the certificate request %s pending: %s", csr.Name, j.reason)
	default:
		r.Recorder.Eventf(machine, nil, corev1.EventTypeNormal, "CertificateApproved", string(approve), "Approved the %s certificate: %s", kind, j.reason)
	}
}

// kindOf returns the purpose of a request.
func kindOf(csr *certificatesv1.CertificateSigningRequest) string {
	switch {
	case csr.Spec.SignerName == certificatesv1.KubeletServingSignerName:
		return "serving"
	case strings.HasPrefix(csr.Spec.Username, nodeUserPrefix):
		return "renewal"
	}
	return "join"
}
