package approver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
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
	// Signer signs the approved requests of clusters whose CAs have their keys elsewhere. If nil,
	// kube-controller-manager signs in all clusters.
	Signer pki.Signer
	// Fence leaves the requests of another management cluster alone.
	Fence fence.Fence
	// WatchFilterValue limits the Clusters to those with this watch label. If not set, all Clusters
	// are reconciled.
	WatchFilterValue string

	watcher clustercache.SourceWatcher[ctrl.Request]
	// pausedUntil holds the end of each cluster's pause. continueAfter is the user after which the
	// next pass over the requests of a cluster continues.
	pausedUntil reconcile.Memory[client.ObjectKey, time.Time]
	// signAfter is the same for requests that are signed.
	continueAfter      reconcile.Memory[client.ObjectKey, string]
	signAfter          reconcile.Memory[client.ObjectKey, string]
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
		r.signAfter.Forget(req.NamespacedName)
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
	// controlPlane is set if the requests are signed here: the CAs of the cluster have their keys
	// elsewhere.
	controlPlane *controlPlane
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
		if bootstrapv1.IsNovaConfig(list.Items[i].Spec.Bootstrap.ConfigRef) {
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
	if err := r.findSigner(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	open, unsigned, err := r.requests(ctx, f)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer r.setOpen(cluster, slices.Concat(open, unsigned))
	after, _ := r.continueAfter.Get(cluster)
	picked, last := pick(open, after)
	r.continueAfter.Set(cluster, last)
	result, err := r.decideOpen(ctx, picked, f)
	after, _ = r.signAfter.Get(cluster)
	toSign, lastSigned := pick(unsigned, after)
	r.signAfter.Set(cluster, lastSigned)
	waits, signErr := r.signAll(ctx, toSign, f)
	if err = errors.Join(err, signErr); waits || len(toSign) < len(unsigned) {
		result.RequeueAfter = min(result.RequeueAfter, pendingRetry)
	}
	switch {
	case last != "" || lastSigned != "":
		result.RequeueAfter = min(result.RequeueAfter, staleCacheRetry)
	case len(picked) < len(open):
		result.RequeueAfter = min(result.RequeueAfter, pendingRetry)
	}
	return result, err
}

// findSigner finds out whether the requests of a cluster are signed here.
func (r *Reconciler) findSigner(ctx context.Context, f *clusterFacts) error {
	if r.Signer == nil || !ownsRenewals(f.cluster) {
		return nil
	}
	signs, err := r.Signer.Signs(ctx, client.ObjectKeyFromObject(f.cluster))
	if err != nil {
		return fmt.Errorf("finding the signer of the cluster: %w", err)
	}
	if signs {
		f.controlPlane, err = controlPlaneOf(ctx, r.Client, f.cluster)
	}
	return err
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

// requests returns the open requests of nodes, and the approved ones that are signed here.
func (r *Reconciler) requests(ctx context.Context, f *clusterFacts) (open, unsigned []*certificatesv1.CertificateSigningRequest, err error) {
	cluster, wanted := client.ObjectKeyFromObject(f.cluster), kubeletSigners
	if f.controlPlane != nil {
		wanted = signers
	}
	workloadClient, err := r.WorkloadClusters.GetClient(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	kind := certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest")
	if _, err := workloadClient.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); isAPIUnavailable(err) {
		return nil, nil, &apiUnavailableError{err: err}
	} else if err != nil {
		return nil, nil, fmt.Errorf("discovering certificate requests: %w", err)
	}
	if err := r.watch(ctx, cluster); err != nil {
		return nil, nil, err
	}
	list := &certificatesv1.CertificateSigningRequestList{}
	// The list is only read, and copying thousands of requests is expensive.
	if err := workloadClient.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing certificate requests: %w", err)
	}
	for i := range list.Items {
		csr := &list.Items[i]
		switch {
		case !slices.Contains(wanted, csr.Spec.SignerName):
		case isOpen(csr):
			open = append(open, csr)
		case f.controlPlane != nil && isUnsigned(csr):
			unsigned = append(unsigned, csr)
		}
	}
	return open, unsigned, nil
}
