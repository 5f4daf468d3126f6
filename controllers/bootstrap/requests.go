package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

const (
	// granted is how long the permissions for joining are assumed to exist after a check.
	granted = 10 * time.Minute
	// holdAgain is the delay until a pending request is judged again if no event triggers it.
	holdAgain = 15 * time.Second
	// noteAgain is the delay until requests are judged again after the cache was out of date.
	noteAgain = time.Second
	// passTimeout bounds one pass over the requests of a cluster. After a pass, the cluster rests for
	// restShare times the duration of the pass. So the cluster occupies at most a quarter of a worker,
	// however slow its responses are and however many requests its nodes create.
	passTimeout, restShare = 5 * time.Second, 3
	// unservedAgain is the delay until a workload cluster that serves no certificate requests is read
	// again: its API server must be changed first.
	unservedAgain = time.Minute
)

// RequestReconciler judges the certificate requests of nodes in workload clusters: the first client
// certificate of a kubelet that joins, and serving certificates. It judges them for machines with a
// NovaConfig and ignores all others. In clusters with a NovaControlPlane it also ends the renewals of
// nodes without a Machine.
type RequestReconciler struct {
	// Client reads through the cache. Defaults to the manager's client.
	Client client.Client
	// Recorder records events. Defaults to the manager's recorder.
	Recorder events.EventRecorder
	// Tenants connects to the workload clusters.
	Tenants clustercache.ClusterCache
	// Fence leaves the requests of another management cluster alone.
	Fence fence.Fence
	// WatchFilterValue limits the Clusters to those with this watch label. If not set, all Clusters
	// are reconciled.
	WatchFilterValue string
	// Resolve looks up the addresses of a control plane endpoint that is a DNS name. If nil, the
	// system's resolver is used.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)

	watcher clustercache.SourceWatcher[ctrl.Request]
	// rests holds the end of each cluster's rest. after is the user after which the next pass over the
	// requests of a cluster continues.
	rests  memory[client.ObjectKey, time.Time]
	after  memory[client.ObjectKey, string]
	grants memory[client.ObjectKey, time.Time]
	// renewals are the written lists of nodes that may renew their certificates.
	renewals memory[client.ObjectKey, renewal]
	// surveys are the addresses that were looked up for serving certificates.
	surveys memory[client.ObjectKey, surveyed]
	// told holds the pending requests for which an event was recorded.
	told memory[types.UID, string]
	// open holds the requests of each workload cluster that were open in the last pass. A request that
	// is no longer open may never have been judged: kubelets replace requests that are not approved,
	// and the old ones are deleted.
	open memory[client.ObjectKey, map[types.UID]struct{}]
	// unserved holds the workload clusters for which an event reported that they serve no certificate
	// requests.
	unserved memory[client.ObjectKey, struct{}]
}

// Reconcile judges the open requests of one workload cluster.
func (r *RequestReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		r.grants.forget(req.NamespacedName)
		r.renewals.forget(req.NamespacedName)
		r.surveys.forget(req.NamespacedName)
		r.unserved.forget(req.NamespacedName)
		r.rests.forget(req.NamespacedName)
		r.after.forget(req.NamespacedName)
		r.noteOpen(req.NamespacedName, nil)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !loop.Watched(cluster, r.WatchFilterValue) || annotations.IsPaused(cluster, cluster) || !cluster.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	facts, err := r.facts(ctx, cluster)
	if err != nil || len(facts.ours) == 0 {
		return ctrl.Result{}, err
	}
	if err := allowed(ctx, r.Client, r.Fence, cluster); err != nil {
		if fence.IsOther(err) {
			ctrl.LoggerFrom(ctx).V(2).Info("Ignoring certificate requests", "cause", err.Error())
			return ctrl.Result{RequeueAfter: granted}, nil
		}
		return ctrl.Result{}, err
	}
	until, _ := r.rests.get(req.NamespacedName)
	// The clock is read once: at a second read the remaining time could be zero, and the request would
	// wait for the next event.
	if left := time.Until(until); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	began := time.Now()
	result, err := r.judgeAll(ctx, facts)
	r.rests.set(req.NamespacedName, time.Now().Add(restShare*time.Since(began)))
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		// A new connection to the workload cluster triggers the next reconcile.
		r.grants.forget(req.NamespacedName)
		r.renewals.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if missing, is := errors.AsType[*unservedError](err); is {
		r.announceUnserved(ctx, cluster, missing)
		return ctrl.Result{RequeueAfter: unservedAgain}, nil
	}
	if err == nil {
		r.unserved.forget(req.NamespacedName)
	}
	return result, err
}

// unservedError means that a workload cluster responds, but serves no certificate requests.
type unservedError struct{ err error }

func (e *unservedError) Error() string { return e.err.Error() }

func (e *unservedError) Unwrap() error { return e.err }

// unserved distinguishes a workload cluster that does not serve requests from an unreachable one.
func unserved(err error) bool {
	var answer apierrors.APIStatus
	return meta.IsNoMatchError(err) || errors.As(err, &answer)
}

// announceUnserved records once that no machine can join, because each machine waits for its
// certificate.
func (r *RequestReconciler) announceUnserved(ctx context.Context, cluster *clusterv1.Cluster, missing *unservedError) {
	key := client.ObjectKeyFromObject(cluster)
	if _, ok := r.unserved.get(key); ok {
		return
	}
	r.unserved.set(key, struct{}{})
	ctrl.LoggerFrom(ctx).Error(missing, "The workload cluster does not serve CertificateSigningRequests")
	r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, "CertificatesAPIUnavailable", "Judge",
		"No machine can join: the API server does not serve %s; check its argument runtime-config: %s", certificatesv1.SchemeGroupVersion, missing)
}

// clusterFacts holds the data by which the requests of one cluster are judged.
type clusterFacts struct {
	cluster *clusterv1.Cluster
	// machines are all Machines of the cluster, and ours those with a NovaConfig.
	machines, ours []*clusterv1.Machine
	// tenant reads and writes in the workload cluster, without the cache.
	tenant client.Client
	// renewable lists the nodes that may renew their certificates. It is nil if other controllers
	// manage renewals.
	renewable []string
}

// facts reads the Machines of a cluster.
func (r *RequestReconciler) facts(ctx context.Context, cluster *clusterv1.Cluster) (*clusterFacts, error) {
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

// judgeAll prepares a workload cluster and judges its open requests.
func (r *RequestReconciler) judgeAll(ctx context.Context, f *clusterFacts) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	cluster := client.ObjectKeyFromObject(f.cluster)
	live, err := r.Tenants.GetUncachedClient(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	f.tenant = live
	if at, ok := r.grants.get(cluster); !ok || time.Since(at) > granted {
		if err := grant(ctx, live); err != nil {
			return ctrl.Result{}, err
		}
		r.grants.set(cluster, time.Now())
	}
	if err := r.bindRenewals(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	open, err := r.requests(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer r.noteOpen(cluster, open)
	after, _ := r.after.get(cluster)
	picked, last := pick(open, after)
	r.after.set(cluster, last)
	result, err := r.judgeOpen(ctx, picked, f)
	switch {
	case last != "":
		result.RequeueAfter = min(result.RequeueAfter, noteAgain)
	case len(picked) < len(open):
		result.RequeueAfter = min(result.RequeueAfter, holdAgain)
	}
	return result, err
}

// noteOpen stores the open requests of a workload cluster, and drops the recorded events of requests
// that are no longer open.
func (r *RequestReconciler) noteOpen(cluster client.ObjectKey, open []*certificatesv1.CertificateSigningRequest) {
	now := make(map[types.UID]struct{}, len(open))
	for _, csr := range open {
		now[csr.UID] = struct{}{}
	}
	before, _ := r.open.get(cluster)
	for uid := range before {
		if _, still := now[uid]; !still {
			r.told.forget(uid)
		}
	}
	if len(now) == 0 {
		r.open.forget(cluster)
		return
	}
	r.open.set(cluster, now)
}

// judgeOpen judges the open requests of a workload cluster one by one.
func (r *RequestReconciler) judgeOpen(ctx context.Context, open []*certificatesv1.CertificateSigningRequest, f *clusterFacts) (ctrl.Result, error) {
	result := ctrl.Result{RequeueAfter: granted}
	var errs []error
	for _, csr := range open {
		verdict, machine, err := r.judge(ctx, csr, f)
		if apierrors.IsConflict(err) {
			// The cache is out of date: another key may have been recorded a moment ago.
			result.RequeueAfter = min(result.RequeueAfter, noteAgain)
			continue
		}
		if err == nil {
			err = r.settle(ctx, csr, f.tenant, verdict, machine)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("deciding certificate request %s: %w", csr.Name, err))
		}
		if verdict.ruling == hold {
			result.RequeueAfter = min(result.RequeueAfter, holdAgain)
		}
	}
	return result, errors.Join(errs...)
}

// requests returns the open requests of nodes.
func (r *RequestReconciler) requests(ctx context.Context, cluster client.ObjectKey) (open []*certificatesv1.CertificateSigningRequest, err error) {
	tenant, err := r.Tenants.GetClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	kind := certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest")
	if _, err := tenant.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); unserved(err) {
		return nil, &unservedError{err: err}
	} else if err != nil {
		return nil, fmt.Errorf("discovering certificate requests: %w", err)
	}
	if err := r.watch(ctx, cluster); err != nil {
		return nil, err
	}
	list := &certificatesv1.CertificateSigningRequestList{}
	// The list is only read, and copying thousands of requests is expensive.
	if err := tenant.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing certificate requests: %w", err)
	}
	for i := range list.Items {
		csr := &list.Items[i]
		if slices.Contains(judgedSigners, csr.Spec.SignerName) && isOpen(csr) {
			open = append(open, csr)
		}
	}
	return open, nil
}

// judge judges one request, and returns the machine that it concerns.
func (r *RequestReconciler) judge(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, f *clusterFacts) (judgement, *clusterv1.Machine, error) {
	asked := read(csr)
	node := strings.TrimPrefix(asked.username, nodeUserPrefix)
	if csr.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		m := machineOfNode(node, f.ours)
		if !servesNode(asked, m) {
			return judgement{ruling: ignore}, m, nil
		}
		net, err := r.network(ctx, f)
		return judgeServing(asked, m, net, f.machines), m, err
	}
	if node != asked.username {
		m := machineOfNode(node, f.machines)
		return judgeRenewal(asked, m, f.renewable), m, nil
	}
	uid, ours, err := joinerOf(ctx, f.tenant, asked)
	if err != nil || !ours {
		return judgement{ruling: ignore}, nil, err
	}
	machine, err := r.machineOfJoiner(ctx, uid, f.ours)
	if err != nil {
		return judgement{}, nil, err
	}
	if machine == nil {
		return judgeJoin(asked, joiner{}), nil, nil
	}
	verdict, err := r.judgeJoiner(ctx, asked, f.tenant, machine)
	return verdict, machine, err
}

// judgeJoiner judges a request that was made with a machine's credential. The key is recorded before
// it is approved: no other key is approved later, whatever happens in between and however old the
// cache is.
func (r *RequestReconciler) judgeJoiner(ctx context.Context, asked request, tenant client.Client, machine *clusterv1.Machine) (judgement, error) {
	err := tenant.Get(ctx, client.ObjectKey{Name: machine.Name}, &corev1.Node{})
	if client.IgnoreNotFound(err) != nil {
		return judgement{}, fmt.Errorf("reading node: %w", err)
	}
	from := joiner{machine: machine, node: !apierrors.IsNotFound(err)}
	config := &bootstrapv1.NovaConfig{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}, config); err != nil {
		if apierrors.IsNotFound(err) {
			return held("The NovaConfig of Machine %s does not exist", machine.Name), nil
		}
		return judgement{}, fmt.Errorf("reading NovaConfig: %w", err)
	}
	from.certified = config.Annotations[bootstrapv1.CertifiedKeyAnnotation]
	verdict := judgeJoin(asked, from)
	if verdict.ruling != approve || from.certified != "" {
		return verdict, nil
	}
	noted := config.DeepCopy()
	metav1.SetMetaDataAnnotation(&noted.ObjectMeta, bootstrapv1.CertifiedKeyAnnotation, asked.keyHash())
	if err := r.Client.Patch(ctx, noted, client.MergeFromWithOptions(config, client.MergeFromWithOptimisticLock{})); err != nil {
		return judgement{}, fmt.Errorf("recording key: %w", err)
	}
	return verdict, nil
}

// machineOfJoiner returns the machine that a credential belongs to. If the machine was moved after it
// got the credential, its bootstrap data identifies it.
func (r *RequestReconciler) machineOfJoiner(ctx context.Context, uid types.UID, machines []*clusterv1.Machine) (*clusterv1.Machine, error) {
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
		if data.Annotations[joinerAnnotation] == string(uid) && data.Labels[clusterv1.ClusterNameLabel] == m.Spec.ClusterName {
			return m, nil
		}
	}
	return nil, nil //nolint:nilnil // the credential is of no machine
}

// settle writes a judgement to the request and records an event.
func (r *RequestReconciler) settle(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, tenant client.Client,
	j judgement, machine *clusterv1.Machine,
) error {
	if j.ruling == ignore {
		return nil
	}
	if j.ruling != hold {
		condition := certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "NovaMachine", Message: j.why,
			LastUpdateTime: metav1.Now(),
		}
		if j.ruling == deny {
			condition.Type = certificatesv1.CertificateDenied
		}
		judged := csr.DeepCopy()
		judged.Status.Conditions = append(judged.Status.Conditions, condition)
		// It uses a patch, because the cache does not keep the whole object.
		err := tenant.SubResource("approval").Patch(ctx, judged, client.MergeFromWithOptions(csr, client.MergeFromWithOptimisticLock{}))
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

// announce records an event for a judgement. A pending request gets one event per reason.
func (r *RequestReconciler) announce(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, j judgement, machine *clusterv1.Machine) {
	kind := kindOf(csr)
	if why, ok := r.told.get(csr.UID); ok && j.ruling == hold && why == j.why {
		return
	}
	if j.ruling == hold {
		r.told.set(csr.UID, j.why)
	} else {
		r.told.forget(csr.UID)
	}
	judged.WithLabelValues(kind, strings.ToLower(string(j.ruling))).Inc()
	ctrl.LoggerFrom(ctx).Info("Decided certificate request", "request", csr.Name, "user", csr.Spec.Username, "decision", j.ruling, "reason", j.why)
	if machine == nil {
		return
	}
	switch j.ruling {
	case deny:
		r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, "CertificateDenied", string(deny), "Denied the certificate request %s: %s", csr.Name, j.why)
	case hold:
		r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, "CertificatePending", string(hold), "Left the certificate request %s pending: %s", csr.Name, j.why)
	default:
		r.Recorder.Eventf(machine, nil, corev1.EventTypeNormal, "CertificateApproved", string(approve), "Approved the %s certificate: %s", kind, j.why)
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
